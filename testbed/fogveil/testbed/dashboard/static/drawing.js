"use strict";
// Drawing: charts over simulated time (uPlot), lines of jobs, and the network on a canvas.

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const JOB_COLOURS = 6;
const jobColour = (category) => styleOf(`--job-${category % JOB_COLOURS}`);
const RUN_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];
const RUN_DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4]];

// A line of jobs is one background with a block for each job; a frame holds those in service.
function lineOfJobs(element, categories, serving, held) {
  element.classList.toggle("serves", serving > 0 && categories.length > 0);
  if (!categories.length) {
    element.style.background = "none";
    element.title = "no job";
    return;
  }
  const [width, gap] = categories.length > 24 ? [7, 2] : [14, 4];
  const stops = [];
  categories.forEach((category, place) => {
    const [from, to] = [place * width, (place + 1) * width - gap];
    const colour = jobColour(category);
    stops.push(`${colour} ${from}px ${to}px`, `transparent ${to}px ${to + gap}px`);
  });
  const end = categories.length * width;
  element.style.background = `linear-gradient(90deg, ${stops.join(", ")}, transparent ${end}px)`;
  const inService = Math.max(0, Math.min(serving, categories.length) * width - gap);
  element.style.setProperty("--serving", `${inService}px`);
  element.title = `${held} jobs, ${Math.min(serving, held)} of them in service`;
}

class Chart {
  constructor(parent, title, names, options = {}) {
    const box = document.createElement("div");
    box.className = "chart";
    const head = document.createElement("h3");
    head.textContent = title;
    const place = document.createElement("div");
    box.append(head, place);
    parent.append(box);
    this.place = place;
    this.names = names;
    this.options = options;
    this.make();
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.make());
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: 190 };
  }

  make() {
    const data = this.plot ? this.plot.data : [[0], ...this.names.map(() => [null])];
    this.plot?.destroy();
    const axis = { stroke: styleOf("--muted"), grid: { stroke: styleOf("--line"), width: 1 }, ticks: { show: false } };
    this.plot = new uPlot({
      ...this.size(),
      scales: { x: { time: false }, y: { distr: this.options.logarithmic ? 3 : 1 } },
      axes: [{ ...axis, label: this.options.below ?? "simulated time", labelSize: 18, size: 34 }, { ...axis, size: 56 }],
      series: [{ label: this.options.below ?? "time" }, ...this.names.map((name, number) => ({
        label: name, stroke: RUN_COLOURS[number % 4], dash: RUN_DASHES[number % 4], width: 1.6, spanGaps: true,
        points: { show: false },
      }))],
      cursor: { y: false },
    }, data, this.place);
  }

  show(data) {
    this.plot.setData(data);
  }
}

class NetworkMap {
  constructor(parent, network, names) {
    this.network = network;
    this.names = names;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "network: clusters, Fog nodes, the Cloud, and workloads on their way");
    parent.append(this.canvas);
    this.transit = [];
    this.base = null;
    new ResizeObserver(() => { this.base = null; this.draw(); }).observe(parent);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.base = null; this.draw(); });
  }

  at(node) {
    const [x, y] = this.network.places[node];
    const margin = 34;
    return [margin + x * (this.width - 2 * margin), margin + (1 - y) * (this.height - 2 * margin)];
  }

  drawBase() {
    const scale = devicePixelRatio || 1;
    this.width = this.canvas.parentElement.clientWidth;
    this.height = Math.min(560, Math.max(280, this.width * 0.5));
    const base = document.createElement("canvas");
    for (const each of [this.canvas, base]) {
      each.width = this.width * scale;
      each.height = this.height * scale;
    }
    this.canvas.style.height = `${this.height}px`;
    const pen = base.getContext("2d");
    pen.scale(scale, scale);
    pen.strokeStyle = styleOf("--line");
    pen.beginPath();
    for (const [a, b] of this.network.links) {
      pen.moveTo(...this.at(a));
      pen.lineTo(...this.at(b));
    }
    pen.stroke();
    const named = new Set([...this.network.fogs, ...this.network.clusters, this.network.cloud]);
    pen.fillStyle = styleOf("--wall");
    this.network.places.forEach((_, node) => { if (!named.has(node)) this.dot(pen, this.at(node), 1.6); });
    const many = this.network.fogs.length > 40;
    const mark = (nodes, draw, labels) => nodes.forEach((node, number) => {
      const [x, y] = this.at(node);
      draw(x, y);
      if (!many) {
        pen.fillStyle = styleOf("--text");
        pen.font = "11px system-ui, sans-serif";
        pen.fillText(labels[number], x + 8, y - 6);
      }
    });
    const size = many ? 3 : 6;
    mark(this.network.fogs, (x, y) => { pen.fillStyle = "#e69f00"; this.dot(pen, [x, y], size); }, this.names.nodes);
    mark(this.network.clusters, (x, y) => {
      pen.fillStyle = "#8f5bb5";
      pen.beginPath();
      pen.moveTo(x, y - size); pen.lineTo(x + size, y + size); pen.lineTo(x - size, y + size);
      pen.fill();
    }, this.names.clusters);
    mark([this.network.cloud], (x, y) => { pen.fillStyle = "#009e73"; pen.fillRect(x - 7, y - 7, 14, 14); }, [this.names.cloud]);
    this.base = base;
  }

  dot(pen, [x, y], size) {
    pen.beginPath();
    pen.arc(x, y, size, 0, 2 * Math.PI);
    pen.fill();
  }

  draw() {
    if (!this.base) this.drawBase();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.base, 0, 0);
    pen.scale(devicePixelRatio || 1, devicePixelRatio || 1);
    for (const [cluster, node, category, share] of this.transit) {
      const path = this.network.paths[cluster][node];
      const place = share * (path.length - 1);
      const step = Math.min(Math.floor(place), path.length - 2);
      const [a, b] = [this.at(path[step]), this.at(path[step + 1])];
      const rest = place - step;
      pen.fillStyle = jobColour(category);
      this.dot(pen, [a[0] + (b[0] - a[0]) * rest, a[1] + (b[1] - a[1]) * rest], 4);
    }
  }

  show(transit) {
    this.transit = transit;
    this.draw();
  }
}
