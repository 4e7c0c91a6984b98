"use strict";
// Data: see data.rs. Two coordinates: `pos` counts rows (or nanoseconds) from the top of the run, pixels are (pos - top) * zoom.
const D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const [FLOW, HOST, SENT, WIRE, MARK, FLAGS, SEQ, ACK, WIN, LEN, TEXT, STRUCK] = Array(12).keys();
const PLAIN = 0, AGAIN = 1, DUPLICATE = 2;
const FAILURE = 4;
const failure = D.notes.findIndex(n => n[2] === FAILURE);
const DELIVERED = 0, UP = 1, DOWN = 2, REFUSED = 3, NOWHERE = 4;
const FATES = ["delivered", "dropped on the sender's link", "dropped on the receiver's link", "refused by the receiver's NIC", "dropped by the switch"];
const HEAD = 30, AXIS = 104, ROW_MAX = 64, LABELS_FROM = 11;
const HUES = [[214, 75], [160, 84], [286, 50], [330, 65], [190, 90], [250, 70], [95, 65], [20, 60]];
const canvas = $("view"), map = $("map"), tip = $("tip");
const arrivalsOf = D.frames.map(() => []);
D.arrivals.forEach((a, i) => arrivalsOf[a[0]].push(i));
const first = D.frames.length ? D.frames[0][SENT] : 0;

const state = { flow: -1, byTime: false, zoom: 0, top: 0, left: 0, hover: null, kept: null, dark: matchMedia("(prefers-color-scheme: dark)").matches };
let L = null;        // layout of what is shown
let C = {};          // colours
let dirty = false;

// --- layout -------------------------------------------------------------------------------------------------------------------

// Positions of everything that the filter lets through. By order, each event has a row of its own and a silence adds up to six; by
// time, positions are nanoseconds.
function layOut() {
  const shown = f => state.flow < 0 || D.frames[f][FLOW] === state.flow;
  const events = [];   // [time, rank, kind, index]: at one instant, what arrives comes before what that leads to
  D.frames.forEach((f, i) => shown(i) && events.push([f[SENT], 2, 0, i]));
  D.arrivals.forEach((a, i) => shown(a[0]) && events.push([a[2], a[3] === UP ? 3 : 0, 1, i]));
  const name = state.flow < 0 ? "" : D.flows[state.flow];
  const ends = name.startsWith("TCP ") ? name.slice(4).split(" – ") : [];
  const concerns = n => state.flow < 0 || n[1] < 0 || n[2] === 3 || (n[2] === 2 && ends.length === 2 && ends.every(e => n[3].includes(e + ",") || n[3].includes(e + ":")));
  D.notes.forEach((n, i) => (concerns(n) || n[2] === FAILURE) && events.push([n[0], n[2] === FAILURE ? 4 : 1, 2, i]));
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[3] - b[3]);
  const sentAt = new Float64Array(D.frames.length).fill(NaN), doneAt = new Float64Array(D.arrivals.length).fill(NaN), noteAt = new Float64Array(D.notes.length).fill(NaN);
  const rows = [], gaps = [];
  let pos = 0, last = events.length ? events[0][0] : 0;
  const start = last;
  for (const [time, , kind, i] of events) {
    const silence = time - last;
    if (state.byTime) pos = time - start;
    else if (kind === 1 && D.arrivals[i][3] === UP) { doneAt[i] = pos + 0.5; continue; }
    else {
      const extra = silence > 1e6 ? Math.min(6, Math.log10(silence / 1e6) * 1.5 + 1) : 0;
      if (extra) gaps.push([pos, pos + 1 + extra, silence]);
      pos += 1 + extra;
    }
    last = time;
    [sentAt, doneAt, noteAt][kind][i] = pos;
    rows.push([pos, time]);
  }
  const hosts = new Set();
  const frames = [];
  D.frames.forEach((f, i) => {
    if (!shown(i)) return;
    frames.push(i);
    if (f[HOST] >= 0) hosts.add(f[HOST]);
    arrivalsOf[i].forEach(a => D.arrivals[a][1] >= 0 && hosts.add(D.arrivals[a][1]));
  });
  if (!frames.length || state.flow < 0) D.hosts.forEach((_, h) => hosts.add(h));
  frames.sort((a, b) => sentAt[a] - sentAt[b]);
  const reach = new Float64Array(frames.length);
  let far = -Infinity;
  frames.forEach((f, k) => {
    far = Math.max(far, sentAt[f], ...arrivalsOf[f].map(a => doneAt[a]));
    reach[k] = far;
  });
  const trouble = frames.filter(f => D.frames[f][MARK] === AGAIN || arrivalsOf[f].some(a => D.arrivals[a][3] !== DELIVERED));
  const notes = D.notes.map((_, i) => i).filter(i => !Number.isNaN(noteAt[i]));
  L = { sentAt, doneAt, noteAt, rows, gaps, frames, reach, trouble, notes, hosts: [...hosts].sort((a, b) => a - b), end: Math.max(pos, 1) + (state.byTime ? 0 : 1), start };
  standColumns();
  const drops = D.arrivals.filter(a => a[3] !== DELIVERED && shown(a[0])).length;
  const again = frames.filter(f => D.frames[f][MARK] === AGAIN).length;
  $("counts").textContent = `${count(frames.length, "frame")} · ${count(drops, "drop")} · ${again} sent again · ${duration(last - start)}`;
  drawMapBase();
}

const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const size = () => ({ w: canvas.clientWidth, h: canvas.clientHeight });
const room = () => size().h - HEAD - 58;
const fitZoom = () => room() / L.end;
const zoomMax = () => state.byTime ? 0.5 : ROW_MAX;
const y = pos => HEAD + 18 + (pos - state.top) * state.zoom;
const posAt = py => state.top + (py - HEAD - 18) / state.zoom;

// Where hosts stand, before panning. Computed with the layout and when the window changes, since everything asks for it.
function standColumns() {
  const n = L.hosts.length, inner = size().w - AXIS - 40;
  const wide = Math.max(200, n > 1 ? (inner - 240) / (n - 1) : inner);
  const start = AXIS + 40 + Math.min(120, inner / 4);
  L.places = new Map(L.hosts.map((host, k) => [host, n > 1 ? start + k * wide : AXIS + inner / 2]));
  L.last = L.hosts.at(-1);
}

const column = host => L.places.get(host) - state.left;

// Where a frame comes from: its host, or out of the blue, beside whom it is meant for.
function originOf(frame) {
  const host = D.frames[frame][HOST];
  if (host >= 0) return column(host);
  const to = arrivalsOf[frame].length ? D.arrivals[arrivalsOf[frame][0]][1] : L.hosts[0];
  return L.places.has(to) ? column(to) + (to === L.last ? -140 : 140) : AXIS + 40;
}

function clampView() {
  state.zoom = Math.min(zoomMax(), Math.max(fitZoom(), state.zoom));
  state.top = Math.max(0, Math.min(state.top, L.end - room() / state.zoom));
  const over = L.hosts.length > 1 ? Math.max(0, column(L.hosts.at(-1)) + state.left + 140 - size().w) : 0;
  state.left = Math.max(0, Math.min(state.left, over));
}

// --- drawing ------------------------------------------------------------------------------------------------------------------

function paint() {
  if (!dirty) { dirty = true; requestAnimationFrame(draw); }
}

function prepare(element) {
  const ratio = devicePixelRatio || 1, w = element.clientWidth, h = element.clientHeight;
  if (element.width !== Math.round(w * ratio) || element.height !== Math.round(h * ratio)) {
    element.width = Math.round(w * ratio);
    element.height = Math.round(h * ratio);
  }
  const g = element.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return g;
}

// The end of a copy's way, in pixels.
function tipOf(frame, arrival) {
  const f = D.frames[frame], x0 = originOf(frame), y0 = y(L.sentAt[frame]);
  if (arrival === null) return [x0 + (f[HOST] !== L.last ? 70 : -70), y0 + 8];
  const [, host, , fate] = D.arrivals[arrival], py = y(L.doneAt[arrival]);
  const shown = host !== f[HOST] && L.places.has(host);
  const x1 = shown ? column(host) : x0 + (f[HOST] !== L.last ? 200 : -200);
  const part = fate === UP ? 0.3 : fate === DOWN ? 0.72 : fate === NOWHERE ? 0.5 : 1;
  return [x0 + (x1 - x0) * part, py];
}

const legs = frame => arrivalsOf[frame].length ? arrivalsOf[frame] : [null];

function draw() {
  dirty = false;
  clampView();
  const g = prepare(canvas), { w, h } = size();
  g.fillStyle = C.paper;
  g.fillRect(0, 0, w, h);
  g.font = "11px system-ui, sans-serif";
  g.save();
  g.beginPath();
  g.rect(0, HEAD, w, h - HEAD);
  g.clip();
  drawGaps(g, w);
  drawAxis(g, h);
  drawLifelines(g, h);
  const from = posAt(HEAD) , to = posAt(h);
  const seen = visible(from, to);
  const dense = state.byTime ? seen.length > 400 : state.zoom < 4;
  if (dense) drawDense(g, seen, h);
  else for (const f of seen) drawFrame(g, f, h);
  const beside = drawNotes(g, from, to, w);
  drawLabels(g, dense ? [] : seen, beside);
  g.restore();
  drawHead(g, w);
  drawMap();
}

function visible(from, to) {
  let low = 0, high = L.frames.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (L.reach[mid] < from) low = mid + 1; else high = mid;
  }
  const seen = [];
  for (let k = low; k < L.frames.length && L.sentAt[L.frames[k]] <= to; k++) {
    const f = L.frames[k];
    if (L.sentAt[f] >= from || arrivalsOf[f].some(a => L.doneAt[a] >= from)) seen.push(f);
  }
  return seen;
}

function drawGaps(g, w) {
  if (state.zoom < 3) return;
  g.textAlign = "left";
  for (const [from, to, silence] of L.gaps) {
    const a = y(from + 0.6), b = y(to - 0.6);
    if (b < 0 || a > size().h || b - a < 3) continue;
    g.fillStyle = C.gap;
    g.fillRect(AXIS, a, w - AXIS, b - a);
    if (b - a > 12) {
      g.fillStyle = C.faint;
      g.textAlign = "right";
      g.fillText(`+${duration(silence)}`, AXIS - 10, (a + b) / 2 + 4);
    }
  }
}

function drawAxis(g, h) {
  g.fillStyle = C.faint;
  g.textAlign = "right";
  if (state.byTime) {
    const step = nice(90 / state.zoom);
    for (let t = Math.ceil(Math.max(0, state.top) / step) * step; t <= L.end && y(t) < h; t += step) {
      g.fillText(stamp(L.start + t, step), AXIS - 10, y(t) + 4);
      g.fillStyle = C.rule;
      g.fillRect(AXIS - 6, y(t), size().w, 0.5);
      g.fillStyle = C.faint;
    }
    return;
  }
  let low = lowerRow(posAt(HEAD)), lastY = -100, lastTime = -1;
  for (let k = low; k < L.rows.length; k++) {
    const [pos, time] = L.rows[k], py = y(pos);
    if (py > h) break;
    if (py - lastY < 26 || time === lastTime) continue;
    g.fillText(stamp(time, 1000), AXIS - 10, py + 4);
    g.fillRect(AXIS - 6, py - 0.25, 4, 0.5);
    [lastY, lastTime] = [py, time];
  }
}

function lowerRow(pos) {
  let low = 0, high = L.rows.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (L.rows[mid][0] < pos) low = mid + 1; else high = mid;
  }
  return low;
}

function drawLifelines(g, h) {
  g.strokeStyle = C.life;
  g.lineWidth = 1.5;
  for (const host of L.hosts) {
    const x = Math.round(column(host)) + 0.5;
    line(g, x, HEAD, x, h);
  }
}

function line(g, x0, y0, x1, y1) {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

const colour = frame => D.frames[frame][MARK] === AGAIN ? C.again : C.flows[D.frames[frame][FLOW] % C.flows.length];

// Thousands of frames at once: lines only, many a stroke. What was dropped or sent again stands out.
function drawDense(g, seen, h) {
  const strokes = new Map(), crosses = [];
  const flush = (key, lines) => {
    g.strokeStyle = key;
    g.globalAlpha = key === C.again ? 0.8 : 0.3;
    g.stroke(lines.path);
  };
  g.lineWidth = 0.75;
  for (const frame of seen) {
    const f = D.frames[frame], x0 = originOf(frame), y0 = y(L.sentAt[frame]), key = colour(frame);
    for (const a of legs(frame)) {
      const [x1, y1] = tipOf(frame, a);
      if (Math.max(y0, y1) < 0 || Math.min(y0, y1) > h) continue;
      let lines = strokes.get(key);
      if (!lines || lines.count > 400) {
        if (lines) flush(key, lines);
        strokes.set(key, lines = { path: new Path2D(), count: 0 });
      }
      lines.path.moveTo(x0, y0);
      lines.path.lineTo(x1, y1);
      lines.count++;
      if (a !== null && D.arrivals[a][3] !== DELIVERED) crosses.push([x1, y1]);
    }
  }
  strokes.forEach((lines, key) => flush(key, lines));
  g.globalAlpha = 1;
  for (const [x, py] of crosses) cross(g, x, py, 3);
}

function drawFrame(g, frame, h) {
  const f = D.frames[frame], x0 = originOf(frame), y0 = y(L.sentAt[frame]);
  const lit = frame === (state.kept ?? state.hover)?.frame;
  const empty = f[FLAGS] && !f[LEN] && !/[SFR]/.test(f[FLAGS]);
  for (const a of legs(frame)) {
    const [x1, y1] = tipOf(frame, a);
    const fate = a === null ? DELIVERED : D.arrivals[a][3];
    if (Math.max(y0, y1) < 0 || Math.min(y0, y1) > h) continue;
    g.strokeStyle = g.fillStyle = colour(frame);
    g.globalAlpha = lit ? 1 : empty ? 0.7 : 0.95;
    g.lineWidth = lit ? 3 : empty ? 1 : 1.7;
    g.setLineDash(a === null ? [3, 3] : []);
    line(g, x0, y0, x1, y1);
    g.setLineDash([]);
    if (fate === DELIVERED && a !== null) head(g, x0, y0, x1, y1, empty ? 6 : 8);
    g.globalAlpha = 1;
    if (fate !== DELIVERED) cross(g, x1, y1, 5);
    else if (a !== null && D.arrivals[a][4]) {
      g.fillStyle = C.struck;
      g.beginPath();
      g.arc(x0 + (x1 - x0) * 0.86, y0 + (y1 - y0) * 0.86, 3.5, 0, 7);
      g.fill();
    }
  }
}

function head(g, x0, y0, x1, y1, length) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  g.beginPath();
  g.moveTo(x1, y1);
  for (const turn of [-0.35, 0.35]) g.lineTo(x1 - length * Math.cos(angle + turn), y1 - length * Math.sin(angle + turn));
  g.fill();
}

function cross(g, x, py, r) {
  g.strokeStyle = C.bad;
  g.lineWidth = r > 4 ? 2.2 : 1.4;
  line(g, x - r, py - r, x + r, py + r);
  line(g, x - r, py + r, x + r, py - r);
}

// Text on paper, so that lines behind it do not cross it out.
function text(g, words, x, py, colour) {
  const wide = g.measureText(words).width + 6;
  const from = g.textAlign === "right" ? x - wide + 3 : g.textAlign === "center" ? x - wide / 2 : x - 3;
  g.globalAlpha = 0.88;
  g.fillStyle = C.paper;
  g.fillRect(from, py - 9.5, wide, 12);
  g.globalAlpha = 1;
  g.fillStyle = colour;
  g.fillText(words, x, py);
}

function drawLabels(g, seen, beside) {
  if (!state.byTime && state.zoom < LABELS_FROM) return;
  const h = size().h, labels = [...beside];   // [y, host and side, text, x, align, colour]; those of one host and side never cover each other
  const add = (py, key, words, x, align, colour) => py > HEAD && py < h + 12 && labels.push([py, key, words, x, align, colour]);
  const wide = L.hosts.length > 1 ? Math.abs(column(L.hosts[1]) - column(L.hosts[0])) - 60 : 400;
  for (const frame of seen) {
    const f = D.frames[frame], x0 = originOf(frame), y0 = y(L.sentAt[frame]);
    const [x1] = tipOf(frame, legs(frame)[0]), right = x1 >= x0;
    const ink = f[MARK] === AGAIN ? C.again : C.inks[f[FLOW] % C.flows.length];
    add(y0 - 3, `${f[HOST]}${right}`, () => shorten(g, label(frame), wide), x0 + (right ? 9 : -9), right ? "left" : "right", ink);
    for (const a of arrivalsOf[frame]) {
      const [, host, , fate, words] = D.arrivals[a];
      if (!words) continue;
      const [ax, ay] = tipOf(frame, a), after = ax >= x0;
      if (fate === DELIVERED) add(ay + 11, `${host}${!after}`, () => words, ax + (after ? -12 : 12), after ? "right" : "left", C.struck);
      else add(ay + (fate === UP ? 11 : 4), `x${a}`, () => words, ax + (after ? 9 : -9), after ? "left" : "right", C.bad);
    }
  }
  labels.sort((a, b) => a[0] - b[0]);
  const lowest = new Map();
  for (const [py, key, words, x, align, colour] of labels) {
    if (py - (lowest.get(key) ?? -100) < 10) continue;
    lowest.set(key, py);
    g.textAlign = align;
    text(g, words(), x, py, colour);
  }
}

function shorten(g, words, wide) {
  if (g.measureText(words).width <= wide) return words;
  let keep = words.length;
  while (keep > 4 && g.measureText(words.slice(0, keep) + "…").width > wide) keep -= 2;
  return words.slice(0, keep) + "…";
}

function label(frame) {
  const f = D.frames[frame];
  if (!f[FLAGS]) return f[TEXT].replace(/^\S+ > \S+: /, "").replace(/^ARP, /, "");
  const letters = f[FLAGS].replace(".", "");
  const names = { S: "SYN", F: "FIN", R: "RST", P: "PSH", U: "URG" };
  const words = [...letters].map(c => names[c]).filter(n => n !== "PSH");
  if (f[MARK] === AGAIN) words.unshift("again:");
  if (f[MARK] === DUPLICATE) words.unshift("dup");
  if (f[LEN]) words.push(`${f[SEQ]}:${f[SEQ] + f[LEN]}`);
  else if (words.some(word => names[letters[0]] === word)) words.push(`seq ${f[SEQ]}`);
  if (f[FLAGS].includes(".")) words.push(`ack ${f[ACK]}`);
  if (!f[LEN] || f[WIN] === 0) words.push(`win ${f[WIN]}`);
  const sack = /sack \d+ (\S+?)(,|$)/.exec(f[TEXT]);
  if (sack) words.push(`sack ${sack[1]}`);
  return words.join(" ");
}

// Draws notes, and returns the labels of those that have one.
function drawNotes(g, from, to, w) {
  const beside = [];
  for (const i of L.notes) {
    const pos = L.noteAt[i];
    if (pos < from || pos > to) continue;
    const [, host, kind, words] = D.notes[i], py = y(pos);
    if (kind === FAILURE) {
      g.strokeStyle = C.bad;
      g.lineWidth = 2.5;
      line(g, AXIS, py, w, py);
      g.textAlign = "left";
      text(g, `FAILED${host < 0 ? "" : ", " + D.hosts[host]}: ${words}`, AXIS + 12, py + 15, C.bad);
      continue;
    }
    if (host < 0) {
      g.strokeStyle = C.phase;
      g.lineWidth = 1.5;
      g.setLineDash([7, 4]);
      line(g, AXIS, py, w, py);
      g.setLineDash([]);
      g.textAlign = "right";
      text(g, words, w - 12, py - 5, C.phase);
      continue;
    }
    if (!L.places.has(host)) continue;
    const x = column(host), last = host === L.last && L.hosts.length > 1;
    const side = last ? 1 : -1;
    const colour = kind === 1 ? C.faint : kind === 2 ? C.phase : C.bad;
    g.fillStyle = colour;
    if (kind === 1) {
      if (state.zoom < 3 && !state.byTime) continue;
      g.beginPath();
      g.moveTo(x + side * 2, py);
      g.lineTo(x + side * 9, py - 4);
      g.lineTo(x + side * 9, py + 4);
      g.fill();
      continue;
    }
    g.beginPath();
    const r = (state.zoom < 4 && !state.byTime ? 1.5 : 3) * (kind === 3 ? 1.6 : 1);
    if (kind === 3) g.rect(x - r, py - r, 2 * r, 2 * r);
    else g.arc(x, py, r, 0, 7);
    g.fill();
    if (state.byTime || state.zoom >= LABELS_FROM) {
      const brief = kind === 3 ? words : state.flow >= 0 || D.flows.length < 3 ? words.replace(/^.*: /, "") : words.replace(/^[^:]*:(\d+), ([^:]*):(\d+): /, ":$1 ");
      beside.push([py + 4, `${host}${side > 0}`, () => brief, x + side * 12, side > 0 ? "left" : "right", colour]);
    }
  }
  return beside;
}

function drawHead(g, w) {
  g.fillStyle = C.panel;
  g.fillRect(0, 0, w, HEAD);
  g.fillStyle = C.rule;
  g.fillRect(0, HEAD - 1, w, 1);
  g.font = "600 13px system-ui, sans-serif";
  g.textAlign = "center";
  g.fillStyle = C.ink;
  for (const host of L.hosts) g.fillText(D.hosts[host], column(host), 20);
  g.font = "11px system-ui, sans-serif";
  g.textAlign = "right";
  g.fillStyle = C.panel;
  g.fillRect(0, 0, AXIS, HEAD - 1);
  g.fillStyle = C.faint;
  g.fillText("virtual time", AXIS - 10, 20);
}

// --- the map ------------------------------------------------------------------------------------------------------------------

let base = null;
function drawMapBase() {
  const h = map.clientHeight, w = map.clientWidth;
  base = document.createElement("canvas");
  base.width = w;
  base.height = Math.max(1, h);
  const g = base.getContext("2d"), bins = new Float64Array(h + 1);
  const bin = pos => Math.min(h, Math.floor(pos / L.end * h));
  for (const f of L.frames) bins[bin(L.sentAt[f])]++;
  const most = Math.max(1, ...bins);
  g.fillStyle = C.life;
  bins.forEach((n, k) => n && g.fillRect(8, k, Math.max(2, (w - 30) * Math.log1p(n) / Math.log1p(most)), 1));
  for (const f of L.trouble) {
    g.fillStyle = C.again;
    if (D.frames[f][MARK] === AGAIN) g.fillRect(w - 20, bin(L.sentAt[f]), 6, 2);
    g.fillStyle = C.bad;
    for (const a of arrivalsOf[f]) if (D.arrivals[a][3] !== DELIVERED) g.fillRect(w - 12, bin(L.doneAt[a]), 6, 2);
  }
  g.fillStyle = C.phase;
  for (const i of L.notes) if (D.notes[i][1] < 0) g.fillRect(0, bin(L.noteAt[i]), w, 1.5);
  g.fillStyle = C.bad;
  for (const i of L.notes) if (D.notes[i][2] === 3) g.fillRect(0, bin(L.noteAt[i]) - 1, 7, 3);
  if (failure >= 0) g.fillRect(0, bin(L.noteAt[failure]) - 2, w, 4);
}

function drawMap() {
  const g = prepare(map), w = map.clientWidth, h = map.clientHeight;
  g.fillStyle = C.panel;
  g.fillRect(0, 0, w, h);
  if (base) g.drawImage(base, 0, 0);
  const a = state.top / L.end * h, b = Math.min(h, (state.top + room() / state.zoom) / L.end * h);
  g.strokeStyle = C.view;
  g.lineWidth = 2;
  g.globalAlpha = 0.14;
  g.fillStyle = C.view;
  g.fillRect(1, a, w - 2, Math.max(3, b - a));
  g.globalAlpha = 1;
  g.strokeRect(1, a + 1, w - 2, Math.max(3, b - a - 2));
}
