// Goes on from draw.js: what the page says, and what a person does with it.

// --- words --------------------------------------------------------------------------------------------------------------------

function duration(ns) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [unit, name] = units.find(([u]) => Math.abs(ns) >= u) ?? units[3];
  const value = ns / unit;
  return `${Number(value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0))} ${name}`;
}

function stamp(ns, step) {
  const digits = Math.max(0, Math.min(9, 9 - Math.floor(Math.log10(step))));
  return `${(ns / 1e9).toFixed(digits > 6 ? 9 : digits > 3 ? 6 : 3)} s`;
}

function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(n => n * power).find(n => n >= least);
}

const escape = words => String(words).replace(/[&<>]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

function describe(hit) {
  const rows = [];
  const row = (name, words, kind = "") => words !== "" && rows.push(`<tr><td>${name}</td><td class="${kind}">${escape(words)}</td></tr>`);
  if (hit.note !== undefined) {
    const [time, host, , words] = D.notes[hit.note];
    row("at", `${stamp(time, 1)}${host < 0 ? "" : ", " + D.hosts[host]}`);
    return `<b>${escape(words)}</b><table>${rows.join("")}</table>`;
  }
  const frame = hit.frame, f = D.frames[frame];
  row("sent", `${stamp(f[SENT], 1)} by ${D.hosts[f[HOST]] ?? "nobody in this world"} (+${duration(f[SENT] - first)} since the first frame)`);
  const before = D.frames.slice(0, frame).findLast(o => o[FLOW] === f[FLOW]);
  if (before) row("", `${duration(f[SENT] - before[SENT])} after this connection's last frame`);
  for (const a of arrivalsOf[frame]) {
    const [, host, time, fate, words] = D.arrivals[a];
    const where = host >= 0 && fate !== UP ? ` (${D.hosts[host]})` : "";
    row(fate ? "dropped" : "arrived", `${stamp(time, 1)}, ${duration(time - f[SENT])} later: ${FATES[fate]}${where}${words ? ", " + words : ""}`, fate ? "bad" : words ? "struck" : "");
  }
  if (!arrivalsOf[frame].length) row("arrived", "not before the end");
  row("struck", f[STRUCK], "struck");
  if (f[FLAGS]) {
    row("flags", [...f[FLAGS]].map(c => ({ S: "SYN", F: "FIN", R: "RST", P: "PSH", U: "URG", ".": "ACK" })[c]).join(" "));
    row("seq", f[LEN] ? `${f[SEQ]} to ${f[SEQ] + f[LEN]} (${f[LEN]} bytes)` : f[SEQ]);
    if (f[FLAGS].includes(".")) row("ack", f[ACK]);
    row("window", `${f[WIN]} bytes`);
    row("options", f[TEXT].replaceAll(",", ", "));
  } else row("frame", f[TEXT]);
  row("on the wire", `${f[WIRE]} bytes, frame ${frame}`);
  const mark = f[MARK] === AGAIN ? `<span class="again"> sent again</span>` : f[MARK] === DUPLICATE ? " duplicate acknowledgment" : "";
  return `<b>${escape(D.flows[f[FLOW]])}</b>${mark}<table>${rows.join("")}</table>`;
}

// --- what a person does -------------------------------------------------------------------------------------------------------

function distance(px, py, x0, y0, x1, y1) {
  const dx = x1 - x0, dy = y1 - y0, t = Math.max(0, Math.min(1, ((px - x0) * dx + (py - y0) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - x0 - t * dx, py - y0 - t * dy);
}

function hit(px, py) {
  if (py < HEAD) return null;
  const from = posAt(py - 12), to = posAt(py + 12);
  let best = null, least = 7;
  for (const i of L.notes) {
    if (L.noteAt[i] < from || L.noteAt[i] > to) continue;
    const host = D.notes[i][1], x = host < 0 ? px : L.places.has(host) ? column(host) : -99;
    const d = Math.hypot((px - x) / 1.6, py - y(L.noteAt[i]));
    if (d < least) [best, least] = [{ note: i }, d];
  }
  for (const frame of visible(from, to)) {
    const x0 = originOf(frame), y0 = y(L.sentAt[frame]);
    for (const a of legs(frame)) {
      const d = distance(px, py, x0, y0, ...tipOf(frame, a));
      if (d < least) [best, least] = [{ frame }, d];
    }
  }
  return best;
}

function showTip(what, px, py) {
  tip.hidden = !what;
  tip.classList.toggle("kept", Boolean(state.kept));
  if (!what) return;
  tip.innerHTML = describe(what);
  const { w, h } = size(), box = tip.getBoundingClientRect();
  tip.style.left = `${map.clientWidth + (px + 18 + box.width > w ? Math.max(0, px - 18 - box.width) : px + 18)}px`;
  tip.style.top = `${Math.max(HEAD, Math.min(py + 14, h - box.height - 8))}px`;
}

function zoomBy(factor, py = HEAD + room() / 2) {
  const pos = posAt(py);
  state.zoom = Math.min(zoomMax(), Math.max(fitZoom(), state.zoom * factor));
  state.top = pos - (py - HEAD - 18) / state.zoom;
  moved();
}

function moved() {
  if (!state.kept) showTip(null);
  remember();
  paint();
}

function goTo(pos) {
  state.top = pos - room() / state.zoom / 2;
  moved();
}

function toTrouble(step) {
  const middle = state.kept?.frame !== undefined ? L.sentAt[state.kept.frame] : state.top + (step > 0 ? 0 : room() / state.zoom / 2);
  const list = step > 0 ? L.trouble : [...L.trouble].reverse();
  const frame = list.find(f => (L.sentAt[f] - middle) * step > 1e-9);
  if (frame === undefined) return;
  if (!state.byTime) state.zoom = Math.max(state.zoom, 18);
  state.kept = { frame };
  goTo(L.sentAt[frame]);
  clampView();
  showTip(state.kept, ...tipOf(frame, legs(frame)[0]));
}

// A picture of the place in the address, so that it can be sent to someone.
let timer = 0;
function remember() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const words = new URLSearchParams({ zoom: state.zoom.toPrecision(5), at: state.top.toPrecision(8) });
    if (state.flow >= 0) words.set("flow", state.flow);
    if (state.byTime) words.set("scale", "time");
    if (state.kept?.frame !== undefined) words.set("frame", state.kept.frame);
    try { history.replaceState(null, "", `#${words}`); } catch { /* a page without an address */ }
  }, 250);
}

function recall() {
  const words = new URLSearchParams(location.hash.slice(1)), value = name => Number(words.get(name));
  if (words.has("theme")) state.dark = words.get("theme") === "dark";
  state.flow = words.has("flow") && D.flows[value("flow")] !== undefined ? value("flow") : -1;
  state.byTime = words.get("scale") === "time";
  colours();
  relayout();
  if (words.has("zoom")) state.zoom = value("zoom");
  if (words.has("at")) state.top = value("at");
  clampView();
  if (!words.has("at") && !words.has("frame")) toFailure();
  if (words.has("frame") && D.frames[value("frame")] && !Number.isNaN(L.sentAt[value("frame")])) {
    state.kept = { frame: value("frame") };
    if (!words.has("at")) state.top = L.sentAt[state.kept.frame] - room() / state.zoom / 2;
    clampView();
    showTip(state.kept, ...tipOf(state.kept.frame, legs(state.kept.frame)[0]));
  }
  paint();
}

// A run that a check ended opens there, with the frame that shows it best at hand.
function toFailure() {
  if (failure < 0) return;
  const frame = D.notes[failure][4];
  if (!state.byTime) state.zoom = Math.max(state.zoom, 17);
  state.top = L.noteAt[failure] - room() / state.zoom * 0.7;
  clampView();
  if (frame < 0 || Number.isNaN(L.sentAt[frame])) return;
  state.kept = { frame };
  showTip(state.kept, ...tipOf(frame, legs(frame)[0]));
}

// A new filter or scale: everything, if that can be read, else the beginning at a size that can.
function relayout() {
  layOut();
  $("flow").value = state.flow;
  $("by-order").setAttribute("aria-pressed", !state.byTime);
  $("by-time").setAttribute("aria-pressed", state.byTime);
  [state.kept, state.hover, state.top, state.left] = [null, null, 0, 0];
  showTip(null);
  const opening = L.rows[Math.min(40, L.rows.length - 1)];
  state.zoom = Math.max(fitZoom(), state.byTime ? room() / Math.max(1, opening?.[0]) : 17);
  paint();
}

function colours() {
  document.documentElement.classList.toggle("dark", state.dark);
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "panel", "ink", "faint", "rule", "life", "bad", "again", "struck", "phase", "gap", "view"]) C[name] = style.getPropertyValue(`--${name}`).trim();
  C.flows = HUES.map(([hue, s]) => `hsl(${hue} ${s}% ${state.dark ? 64 : 42}%)`);
  C.inks = HUES.map(([hue, s]) => `hsl(${hue} ${s * 0.8}% ${state.dark ? 78 : 30}%)`);
}

function listen() {
  canvas.addEventListener("wheel", e => {
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 16 : 1;
    if (e.shiftKey) { state.top += (e.deltaY || e.deltaX) * unit / state.zoom; moved(); }
    else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { state.left += e.deltaX * unit; moved(); }
    else zoomBy(Math.exp(-e.deltaY * unit * 0.0016), e.offsetY);
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", e => {
    drag = { x: e.offsetX, y: e.offsetY, top: state.top, left: state.left, far: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", e => {
    if (drag) {
      drag.far ||= Math.hypot(e.offsetX - drag.x, e.offsetY - drag.y) > 4;
      if (!drag.far) return;
      canvas.classList.add("panning");
      state.top = drag.top - (e.offsetY - drag.y) / state.zoom;
      state.left = drag.left - (e.offsetX - drag.x);
      return moved();
    }
    if (state.kept) return;
    state.hover = hit(e.offsetX, e.offsetY);
    showTip(state.hover, e.offsetX, e.offsetY);
    paint();
  });
  canvas.addEventListener("pointerup", e => {
    if (drag && !drag.far) {
      const what = hit(e.offsetX, e.offsetY);
      state.kept = what;
      showTip(what, e.offsetX, e.offsetY);
      moved();
    }
    drag = null;
    canvas.classList.remove("panning");
  });
  canvas.addEventListener("pointerleave", () => { if (!state.kept) { state.hover = null; showTip(null); paint(); } });
  const onMap = e => { if (e.buttons || e.type === "pointerdown") { state.kept = null; goTo(e.offsetY / map.clientHeight * L.end); } };
  map.addEventListener("pointerdown", e => { map.setPointerCapture(e.pointerId); onMap(e); });
  map.addEventListener("pointermove", onMap);
  map.addEventListener("wheel", e => { e.preventDefault(); state.top += e.deltaY / state.zoom; moved(); }, { passive: false });
  const fit = () => { state.zoom = fitZoom(); state.top = 0; moved(); };
  const scale = byTime => { state.byTime = byTime; relayout(); remember(); };
  const click = (id, act) => $(id).addEventListener("click", act);
  click("in", () => zoomBy(1.5));
  click("out", () => zoomBy(1 / 1.5));
  click("fit", fit);
  click("by-order", () => scale(false));
  click("by-time", () => scale(true));
  click("next", () => toTrouble(1));
  click("previous", () => toTrouble(-1));
  $("failure").hidden = failure < 0;
  click("failure", () => { toFailure(); moved(); });
  click("about-open", () => $("about").showModal());
  click("theme", () => { state.dark = !state.dark; colours(); drawMapBase(); paint(); });
  $("flow").addEventListener("change", e => { state.flow = Number(e.target.value); relayout(); remember(); });
  const page = () => room() / state.zoom;
  const keys = {
    "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), 0: fit, n: () => toTrouble(1), p: () => toTrouble(-1), f: () => { toFailure(); moved(); },
    ArrowDown: () => { state.top += page() / 12; moved(); }, ArrowUp: () => { state.top -= page() / 12; moved(); },
    ArrowRight: () => { state.left += 60; moved(); }, ArrowLeft: () => { state.left -= 60; moved(); },
    PageDown: () => { state.top += page() * 0.9; moved(); }, PageUp: () => { state.top -= page() * 0.9; moved(); },
    Home: () => { state.top = 0; moved(); }, End: () => { state.top = L.end; moved(); },
    Escape: () => { state.kept = null; showTip(null); paint(); },
  };
  addEventListener("keydown", e => {
    if (e.target.tagName === "SELECT" || e.ctrlKey || e.metaKey || e.altKey || $("about").open) return;
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
  addEventListener("resize", () => { standColumns(); drawMapBase(); paint(); });
  addEventListener("hashchange", recall);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", e => { state.dark = e.matches; colours(); drawMapBase(); paint(); });
}

document.title = D.title;
$("title").textContent = D.title;
$("title").title = `${D.title}, trace ${D.hash}`;
$("about-text").textContent = `${D.title}\ntrace ${D.hash}\n\n${D.about}`;
$("flow").append(new Option("all of them", -1), ...D.flows.map((name, i) => new Option(name, i)));
listen();
recall();
