"use strict";
// The page: two streams, one for each half. The agent's half is filled from the first alone.

const byId = (id) => document.getElementById(id);
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 20];
const MANY = 40;
let facts, privateFacts, runs = [], charts = {}, maps = [], status = {}, baseSpeed = 1, sliding = false;

const number = (value, digits = 3) =>
  value === null || value === undefined ? "–" : Number(value).toLocaleString("en", { maximumSignificantDigits: digits });

function element(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// --- building ---------------------------------------------------------------------------------

function makeRows(box, heads, names, cells) {
  const head = element("div", "row head");
  head.append(...heads.map(([text, kind]) => element("span", kind, text)));
  const rows = names.map((name) => {
    const row = element("div", "row");
    const parts = { row, name: element("span", "", name) };
    row.append(parts.name);
    for (const [key, kind] of cells) row.append(parts[key] = element("span", kind));
    return parts;
  });
  box.append(head, ...rows.map((parts) => parts.row));
  return rows;
}

function makeRun(run) {
  const section = byId("run").content.firstElementChild.cloneNode(true);
  section.querySelector(".name").textContent = `${run.policy} on ${run.scenario}, level ${run.level}`;
  if (run.nodes.length > MANY) section.classList.add("many");
  const half = (name) => {
    const part = section.querySelector(`.${name}`);
    return { about: part.querySelector(".about"), rows: part.querySelector(".rows") };
  };
  const [agent, hidden] = [half("agent"), half("private")];
  const made = {
    section, agent, hidden, messages: section.querySelector(".messages"), leak: section.querySelector(".leak"),
    agentRows: makeRows(agent.rows, [["node", ""], ["count", "n"], ["placed", "n"], ["believed service time (log)", ""]],
      run.nodes, [["count", "n"], ["placed", "n"], ["belief", "belief"]]),
    hiddenRows: makeRows(hidden.rows, [["node", ""], ["speed", "n"], ["busy", "n"], ["held", "n"], ["line of jobs", ""]],
      run.nodes, [["speed", "n"], ["busy", "n"], ["held", "n"], ["line", "line"]]),
  };
  for (const [one, other] of [[agent.rows, hidden.rows], [hidden.rows, agent.rows]]) {
    one.addEventListener("scroll", () => { if (other.scrollTop !== one.scrollTop) other.scrollTop = one.scrollTop; });
  }
  const leave = () => setTimeout(() => showMessages(made, made.latest ?? []));
  made.messages.addEventListener("mouseleave", leave);
  made.messages.addEventListener("focusout", leave);
  for (const parts of made.agentRows) parts.belief.append(parts.range = element("i"), parts.mark = element("b"));
  const total = element("div", "row");
  total.append(element("span", "", "total"), made.total = element("span", "n"), made.decisions = element("span", "n"));
  agent.rows.append(total);
  byId("runs").append(section);
  made.meter = new Chart(section.querySelector(".leak-curve"), "error of what the agent infers, in percent, over simulated time",
    ["error (%)"], { logarithmic: true, small: true, until: run.horizon });
  return made;
}

function makeLegend(box, categories) {
  box.replaceChildren(...categories.map((name, place) => {
    const entry = element("span", "legend");
    const colour = element("i");
    colour.style.background = `var(--job-${place % JOB_COLOURS})`;
    entry.append(colour, name);
    return entry;
  }));
}

function makeCharts() {
  const names = facts.runs.map((run) => run.policy);
  const box = byId("charts");
  const until = facts.runs[0].horizon;
  charts.delay = new Chart(box, "Mean Fog loop delay, by emission", names, { until });
  charts.unserved = new Chart(box, "Jobs not back yet", names, { until });
  charts.error = new Chart(box, "Error of what the agent infers (%)", names, { logarithmic: true, until });
}

function makeMaps() {
  const shapes = [["●", "--fog", "Fog node; a ring grows with the jobs that it holds"], ["▲", "--cluster", "IoT cluster"], ["■", "--cloud", "Cloud"]];
  byId("map-legend").replaceChildren(...shapes.map(([shape, colour, text]) => {
    const entry = element("span", "legend");
    const mark = element("b", "", shape);
    mark.style.color = `var(${colour})`;
    entry.append(mark, text);
    return entry;
  }), "small dots: workloads on their way, in the colours of their applications");
  maps = facts.runs.map((run) => {
    const box = element("figure", "map");
    if (facts.runs.length > 1) box.append(element("figcaption", "", `under ${run.policy}`));
    byId("maps").append(box);
    return new NetworkMap(box, facts.network, run);
  });
}

// --- showing ----------------------------------------------------------------------------------

function showAgent(state) {
  state.runs.forEach((half, place) => {
    const made = runs[place], run = facts.runs[place];
    const service = half.belief?.service ?? [];
    const [low, high] = [Math.log(Math.min(...service) / 2), Math.log(Math.max(...service) * 2)];
    const at = (value) => Math.max(0, Math.min(100, (100 * (Math.log(value) - low)) / (high - low)));
    made.agentRows.forEach((parts, node) => {
      setText(parts.count, half.counts ? String(half.counts[node]) : half.decisions ? "hidden" : "–");
      setText(parts.placed, half.placed[node].toLocaleString("en"));
      parts.row.classList.toggle("chosen", half.last?.node === node);
      const believed = service[node];
      parts.belief.title = believed === undefined ? "nothing inferred yet" : `believed mean service time ${number(believed)}`;
      parts.range.style.display = parts.mark.style.display = believed === undefined ? "none" : "";
      if (believed !== undefined) {
        const [least, most] = [at(half.belief.least[node]), at(half.belief.most[node])];
        parts.mark.style.left = `${at(believed)}%`;
        parts.range.style.left = `${least}%`;
        parts.range.style.width = `${most - least}%`;
      }
    });
    setText(made.total, half.total === null ? "–" : String(half.total));
    setText(made.decisions, half.decisions.toLocaleString("en"));
    const told = !half.decisions ? "It has decided nothing yet." : half.counts ? "It is shown one integer per node." : half.total !== null ? "It is shown the sum of all counts, no more." : "It looks at no count.";
    const last = half.last ? ` Last: job ${half.last.job}, ${run.categories[half.last.category]}, from ${run.clusters[half.last.cluster]} to ${run.nodes[half.last.node]}.` : "";
    setText(made.agent.about, `${told}${last}`);
    showMessages(made, half.messages);
  });
  state.runs.forEach((half, place) => maps[place]?.show(half.transit));
  showStatus(state);
}

// A list that somebody reads stands still until the mouse or the focus has left it.
function showMessages(made, messages) {
  made.latest = messages;
  const read = made.messages.matches(":hover") || made.messages.contains(document.activeElement);
  made.messages.classList.toggle("reading", read && Boolean(made.shownMessages));
  if (read && made.shownMessages) return;
  const key = JSON.stringify(messages);
  if (key === made.shownMessages) return;
  made.shownMessages = key;
  if (!messages.length) {
    made.messages.replaceChildren(element("li", "", status.live ? "no message yet" : "no message was kept: fogveil run --federated --record keeps them"));
    return;
  }
  made.messages.replaceChildren(...messages.slice().reverse().map((message, place, all) => {
    const entry = element("li");
    entry.tabIndex = 0;
    for (const key of ["wire", "simulated", "from", "to", "method"]) entry.dataset[key] = message[key];
    if (all[place - 1]?.simulated !== message.simulated) entry.append(element("span", "when", `at ${number(message.simulated, 6)}`));
    const whole = JSON.stringify(message.fields);
    const fields = Object.entries(message.fields).map(([key, value]) => `${key} ${brief(value)}`).join(", ");
    entry.append(
      element("span", "route", `${message.from} → ${message.to}`),
      element("span", "what", fields || "empty"),
      element("span", "bytes", `${message.bytes} B`),
      element("span", "whole", `${message.method} ${whole}`),
      element("span", "wire", message.wire || "(no bytes)"),
    );
    return entry;
  }));
}

const brief = (value) => (Array.isArray(value) && typeof value[0] === "object" ? `× ${value.length}` : JSON.stringify(value));

function showPrivate(state) {
  state.runs.forEach((half, place) => {
    const made = runs[place];
    made.hiddenRows.forEach((parts, node) => {
      setText(parts.speed, number(privateFacts.runs[place].ipt[node], 4));
      setText(parts.busy, `${Math.round(100 * half.utilisation[node])}%`);
      setText(parts.held, String(half.held[node]));
      lineOfJobs(parts.line, half.lines[node], half.serving[node], half.held[node]);
    });
    if (!made.legend) {
      made.legend = element("p", "about");
      makeLegend(made.legend, facts.runs[place].categories);
      made.hidden.rows.after(made.legend);
    }
    const over = half.summary && state.time >= state.front;
    const summary = over ? half.summary : { fog_loop: half.fog_loop, unserved: half.unserved };
    const end = over ? "At the end" : "So far";
    setText(made.hidden.about, `${end}: mean Fog loop ${number(summary.fog_loop, 4)}, ${over ? `${summary.unserved} of ${summary.workloads.toLocaleString("en")} unserved at the horizon` : `${summary.unserved} not back yet`}.${half.run_hash ? ` Run hash ${half.run_hash.slice(0, 12)}…` : ""}`);
    made.section.dataset.fogLoop = summary.fog_loop ?? "";
    made.section.dataset.runHash = half.run_hash ?? "";
    const guess = 100 * privateFacts.runs[place].guess;
    const known = half.error !== null;
    made.leak.replaceChildren(known ? "Its beliefs about speeds are wrong by " : "It believes nothing about speeds yet",
      element("strong", "", known ? `${number(100 * half.error)}\u00a0%` : ""), ` (a guess: ${number(guess)}\u00a0%).`);
    made.meter.show(known ? [half.errors.time, percent(half.errors.error)] : [[0], [null]]);
    maps[place]?.hold(half.held);
  });
  showMarks(state);
  showCharts(state);
  showTrainings(state.trainings);
  showStatus(state);
}

const percent = (shares) => shares.map((share) => 100 * share);

// Marks that runs have in common are drawn once.
function marksOf(halves) {
  const all = new Map(halves.flatMap((half) => half.marks).map((mark) => [JSON.stringify(mark), mark]));
  return [...all.values()].sort((a, b) => a[0] - b[0]);
}

function showMarks(state) {
  const marks = marksOf(state.runs), most = Number(byId("time").max);
  const key = JSON.stringify([marks, most]);
  if (key === charts.marksKey) return;
  charts.marksKey = key;
  byId("marks").replaceChildren(...marks.filter(([time]) => time <= most).map(([time, text]) => {
    const tick = element("i");
    tick.style.left = `${(100 * time) / most}%`;
    tick.title = `${text} at ${number(time, 6)}`;
    return tick;
  }));
}

// Curves of several runs on the points in time of all of them.
function together(curves) {
  const times = [...new Set(curves.flatMap(([time]) => time))].sort((a, b) => a - b);
  return [times, ...curves.map(([time, values]) => {
    const known = new Map(time.map((at, place) => [at, values[place]]));
    return times.map((at) => known.get(at) ?? null);
  })];
}

function showCharts(state) {
  if (!charts.delay) return;
  const marks = marksOf(state.runs);
  const curve = (key) => together(state.runs.map((half) => [half.history.time, half.history[key]]));
  charts.delay.show(curve("delay"), marks);
  charts.unserved.show(curve("unserved"), marks);
  const errors = together(state.runs.map((half) => [half.errors.time, percent(half.errors.error)]));
  charts.error.show(errors[0].length ? errors : [[0], ...state.runs.map(() => [null])], marks);
}

function showTrainings(trainings) {
  if (!trainings?.length) return;
  byId("training").hidden = false;
  if (!charts.curve) {
    const box = byId("curves");
    box.className = "charts";
    const below = { below: "decisions" };
    charts.curve = trainings.map((_, n) => new Chart(box, `${facts.trainings[n]}: mean return of the last 10 episodes`, ["return"], below));
    charts.epsilon = trainings.map((_, n) => new Chart(box, `${facts.trainings[n]}: exploration ε`, ["ε"], { ...below, range: [0, 1.05] }));
  }
  trainings.forEach((training, n) => {
    if (!training.decisions.length) return;
    charts.curve[n].show([training.decisions, training.last_returns], training.marks);
    charts.epsilon[n].show([training.decisions, training.epsilon], training.marks);
  });
  const said = trainings.map((training, n) => {
    const { phase, decisions, epsilon } = training.last;
    const where = phase ? `${phase}, ${decisions.toLocaleString("en")} decisions, ε ${number(epsilon)}` : "no episode has ended yet";
    return `${facts.trainings[n]}: ${training.running ? "" : "not running; "}episode ${training.episodes.toLocaleString("en")}, ${where}`;
  });
  setText(byId("training-now"), said.join(" · "));
}

function showStatus(state) {
  status = state;
  setText(byId("hold"), state.held ? "play" : "pause");
  const canMove = !state.live || facts.paced;
  byId("hold").disabled = byId("step").disabled = !canMove;
  byId("time").disabled = state.live;
  byId("speed").disabled = !canMove;
  byId("time").max = Math.max(state.front, state.live ? Math.max(...facts.runs.map((run) => run.horizon), 1) : 1e-9);
  if (!sliding) byId("time").value = state.time;
  const rate = state.live && state.rate ? `, ${number(state.rate)} decisions/s` : "";
  setText(byId("now"), `${number(state.time, 6)} of ${number(Number(byId("time").max), 6)}${rate}`);
  document.body.dataset.time = state.time;
  document.body.dataset.live = state.live;
  document.body.dataset.held = state.held;
  document.body.dataset.failed = state.failed;
  if (!facts.runs.length) setText(byId("notice"), "");
  else if (state.failed) setText(byId("notice"), "The run has failed: this is where it stood. Its log says who was lost.");
  else if (state.live && !facts.paced) setText(byId("notice"), "A run that another command paces: look, no controls.");
  else if (!state.live) setText(byId("notice"), "The run is over: move through it with the slider.");
  else setText(byId("notice"), state.held ? "Paused: simulated time stands still for everybody." : "");
}

// --- controls ---------------------------------------------------------------------------------

async function wish(content) {
  const answer = await fetch("control", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content),
  });
  if (answer.ok) showStatus(await answer.json());
}

function connectControls() {
  const select = byId("speed");
  baseSpeed = Math.max(...facts.runs.map((run) => run.horizon), 60) / 60;
  for (const factor of SPEEDS) {
    const option = element("option", "", `${factor}×`);
    option.value = baseSpeed * factor;
    option.selected = factor === 1;
    select.append(option);
  }
  const most = element("option", "", "fastest");
  most.value = "";
  select.append(most);
  select.addEventListener("change", () => wish({ speed: select.value === "" ? null : Number(select.value) }));
  byId("hold").addEventListener("click", () => wish({ held: !status.held }));
  byId("step").addEventListener("click", () => wish({ step: true }));
  const slider = byId("time");
  slider.addEventListener("input", () => { sliding = true; wish({ time: Number(slider.value), held: true }); });
  slider.addEventListener("change", () => { sliding = false; });
  const faster = (by) => {
    const place = Math.max(0, Math.min(select.options.length - 1, select.selectedIndex + by));
    if (place === select.selectedIndex || select.disabled) return;
    select.selectedIndex = place;
    select.dispatchEvent(new Event("change"));
  };
  const actions = {
    " ": () => byId("hold").click(), ArrowRight: () => byId("step").click(), "+": () => faster(1), "-": () => faster(-1),
  };
  document.addEventListener("keydown", (event) => {
    const kind = event.target.tagName; // these have keys of their own
    if (kind === "INPUT" || kind === "SELECT" || (kind === "BUTTON" && event.key === " ")) return;
    if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
}

function listen(name, show) {
  const stream = new EventSource(`events/${name}`);
  stream.addEventListener("message", (event) => show(JSON.parse(event.data)));
  const ended = () => {
    stream.close();
    document.body.dataset.ended = "true";
    byId("hold").disabled = byId("step").disabled = byId("time").disabled = byId("speed").disabled = true;
    const failed = status.failed ? `The run has failed at ${number(status.time, 6)}: its log says who was lost. ` : "";
    setText(byId("notice"), `${failed}The command that served this page has ended; fogveil dashboard shows its run again.`);
  };
  stream.addEventListener("end", ended);
  stream.addEventListener("error", ended);
}

async function begin() {
  facts = await (await fetch("facts/agent")).json();
  privateFacts = await (await fetch("facts/private")).json();
  const first = facts.runs[0];
  if (first) {
    setText(byId("title"), `fogveil: ${first.scenario} under ${facts.runs.map((run) => run.policy).join(" and ")}`);
    runs = facts.runs.map((run) => makeRun(run));
    makeCharts();
    byId("runs").classList.toggle("several", facts.runs.length > 1);
    makeMaps();
  } else {
    setText(byId("title"), `fogveil: training ${facts.trainings.join(", ")}`);
    byId("network").hidden = byId("charts").hidden = true;
    document.querySelector(".controls").hidden = byId("keys").hidden = true;
  }
  connectControls();
  listen("agent", showAgent);
  listen("private", showPrivate);
}

begin();
