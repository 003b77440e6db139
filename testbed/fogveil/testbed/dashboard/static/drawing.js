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

// Marks of a run: dashed lines with their text, over a chart's curves.
function drawMarks(plot, marks) {
  const pen = plot.ctx, { left, top, width, height } = plot.bbox, scale = devicePixelRatio || 1;
  pen.save();
  pen.strokeStyle = pen.fillStyle = styleOf("--muted");
  pen.font = `${11 * scale}px system-ui, sans-serif`;
  pen.setLineDash([3 * scale, 3 * scale]);
  for (const [time, text] of marks) {
    const x = plot.valToPos(time, "x", true);
    if (x < left || x > left + width) continue;
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, top + height);
    pen.stroke();
    const fits = x + 4 * scale + pen.measureText(text).width < left + width;
    pen.textAlign = fits ? "left" : "right";
    const wide = pen.measureText(text).width + 4 * scale;
    pen.fillStyle = styleOf("--tint");
    pen.fillRect(fits ? x + 2 * scale : x - wide - 2 * scale, top + 2 * scale, wide, 14 * scale);
    pen.fillStyle = styleOf("--muted");
    pen.fillText(text, x + (fits ? 4 : -4) * scale, top + 12 * scale);
  }
  pen.restore();
}

class Chart {
  constructor(parent, title, names, options = {}) {
    const box = document.createElement("div");
    box.className = options.small ? "meter" : "chart";
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", title);
    const place = document.createElement("div");
    if (!options.small) {
      const head = document.createElement("h3");
      head.textContent = title;
      box.append(head);
    }
    box.append(place);
    parent.append(box);
    this.place = place;
    this.names = names;
    this.options = options;
    this.marks = [];
    this.make();
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.make());
  }

  size() {
    return { width: Math.max(160, this.place.clientWidth), height: this.options.small ? 84 : 190 };
  }

  make() {
    const data = this.plot ? this.plot.data : [[0], ...this.names.map(() => [null])];
    this.plot?.destroy();
    const { small, below, logarithmic, until } = this.options;
    const axis = { stroke: styleOf("--muted"), grid: { stroke: styleOf("--line"), width: 1 }, ticks: { show: false } };
    const label = small ? {} : { label: below ?? "simulated time", labelSize: 18 };
    const short = { values: (_, values) => values.map((value) => (value === null ? "" : number(value, 4))) };
    this.plot = new uPlot({
      ...this.size(),
      scales: { x: { time: false, range: (_, least, most) => [0, Math.max(until ?? most, most, 1e-9)] }, y: { distr: logarithmic ? 3 : 1, ...(this.options.range ? { range: this.options.range } : {}) } },
      axes: [{ ...axis, ...label, size: small ? 20 : 34 }, { ...axis, ...short, size: small ? 44 : 58, grid: { ...axis.grid, show: !logarithmic } }],
      series: [{ label: below ?? "time" }, ...this.names.map((name, place) => ({
        label: name, stroke: RUN_COLOURS[place % 4], dash: RUN_DASHES[place % 4], width: 2, spanGaps: true,
        points: { show: Boolean(small), size: 4 },
      }))],
      cursor: { y: false },
      legend: { show: !small },
      hooks: { draw: [(plot) => drawMarks(plot, this.marks)] },
    }, data, this.place);
  }

  show(data, marks = []) {
    this.marks = marks;
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
    this.held = [];
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
    this.height = Math.min(620, Math.max(280, this.width * 0.5));
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
    const size = this.size = many ? 3.5 : 6;
    mark(this.network.fogs, (x, y) => { pen.fillStyle = styleOf("--fog"); this.dot(pen, [x, y], size); }, this.names.nodes);
    mark(this.network.clusters, (x, y) => {
      pen.fillStyle = styleOf("--cluster");
      pen.beginPath();
      pen.moveTo(x, y - size); pen.lineTo(x + size, y + size); pen.lineTo(x - size, y + size);
      pen.fill();
    }, this.names.clusters);
    mark([this.network.cloud], (x, y) => { pen.fillStyle = styleOf("--cloud"); pen.fillRect(x - 7, y - 7, 14, 14); }, [this.names.cloud]);
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
    pen.strokeStyle = styleOf("--fog");
    this.held.forEach((jobs, place) => {
      if (!jobs) return;
      const [x, y] = this.at(this.network.fogs[place]);
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.arc(x, y, this.size + Math.min(26, 3 * Math.sqrt(jobs)), 0, 2 * Math.PI);
      pen.stroke();
    });
    for (const [cluster, node, category, share] of this.transit) {
      const path = this.network.paths[cluster][node];
      const place = share * (path.length - 1);
      const step = Math.min(Math.floor(place), path.length - 2);
      const [a, b] = [this.at(path[step]), this.at(path[step + 1])];
      const rest = place - step;
      pen.fillStyle = jobColour(category);
      pen.strokeStyle = styleOf("--back");
      this.dot(pen, [a[0] + (b[0] - a[0]) * rest, a[1] + (b[1] - a[1]) * rest], 4.5);
      pen.lineWidth = 1;
      pen.stroke();
    }
  }

  show(transit) {
    this.transit = transit;
    this.draw();
  }

  hold(held) {
    this.held = held;
    this.draw();
  }
}
