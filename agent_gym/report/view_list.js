// The list of episodes: sorted by a column's head, filtered by what stands above it, a hundred rows at a time.
const PAGE_ROWS = 100;
const list = { sort: "", down: false, page: 0, order: [] };

const COLUMNS = [
  { key: "task", title: "task", value: (row) => row.task },
  { key: "occasion", title: "occasion", value: (row) => nameOf(row.file), class: "wide" },
  { key: "reward", title: "reward", value: (row) => row.reward ?? -Infinity, shown: (row) => number(row.reward), class: "number" },
  { key: "success", title: "solved", value: (row) => Number(row.success), shown: (row) => (row.success ? "yes" : "no") },
  { key: "turns", title: "turns", value: (row) => row.turns, shown: (row) => number(row.turns), class: "number" },
  { key: "tokens", title: "tokens", value: (row) => row.tokens, shown: (row) => number(row.tokens), class: "number slim", about: "longest prompt with its action" },
  { key: "stop", title: "ended by", value: (row) => row.stop, shown: (row) => words(row.stop), class: "wide" },
  { key: "version", title: "version", value: (row) => row.version, shown: (row) => number(row.version), class: "number wide", about: "optimiser steps behind the weights that played" },
];

const field = (label, control, class_ = "") => el("label", { class: `field ${class_}` }, el("span", {}, label), control);
const bounds = (name, label) => {
  const one = (end, hint) => el("input", { type: "number", step: "any", name: `${name}-${end}`, placeholder: hint, "aria-label": `${label}, ${hint}`, oninput: refilter });
  return el("div", { class: "field", role: "group", "aria-label": label }, el("span", {}, label), el("span", { class: "ends" }, one("low", "least"), one("high", "most")));
};
const choice = (name, first) => el("select", { name, onchange: refilter }, el("option", { value: "" }, first));

let controls, tableBody, tableHead, tableStatus, pager;
const refilter = () => {
  list.page = 0;
  drawList();
};

const buildList = (home) => {
  const success = choice("success", "all");
  success.append(el("option", { value: "yes" }, "solved"), el("option", { value: "no" }, "not solved"));
  controls = el(
    "form",
    { class: "filters card", "aria-label": "filters", onsubmit: (event) => event.preventDefault() },
    field("Task", el("input", { type: "search", name: "task", placeholder: "part of its name", oninput: refilter }), "grow"),
    field("Occasion", choice("occasion", "all")),
    field("Solved", success),
    field("Ended by", choice("stop", "any")),
    bounds("reward", "Reward"),
    bounds("turns", "Turns"),
    bounds("tokens", "Tokens"),
    el("button", { type: "button", class: "plain", onclick: () => (controls.reset(), refilter()) }, "Clear"),
  );
  tableHead = el("tr");
  tableBody = el("tbody");
  tableStatus = el("p", { class: "status", role: "status" });
  pager = el("div", { class: "pager" });
  put(home, el("h2", {}, "Episodes"),
    el("p", { class: "sub" }, "Choose one to see it token by token. A column's head sorts; / goes to the filter, the arrows move in the list."),
    controls,
    tableStatus,
    el("div", { class: "card list" }, el("table", { class: "episodes" }, el("thead", {}, tableHead), tableBody)),
    pager,
  );
  tableBody.addEventListener("keydown", moveInList);
  for (const column of COLUMNS) {
    const button = el("button", { type: "button", class: "sort", "data-sort": column.key, title: column.about, onclick: () => sortBy(column.key) }, column.title);
    tableHead.append(el("th", { class: column.class, scope: "col" }, button));
  }
};

const sortBy = (key) => {
  const numeric = !["task", "occasion", "stop"].includes(key);
  if (list.sort === key && list.down !== numeric) list.sort = "";
  else if (list.sort === key) list.down = !list.down;
  else [list.sort, list.down] = [key, numeric];
  refilter();
};

const fill = (name, values) => {
  const select = controls.elements[name];
  const known = new Set([...select.options].map((option) => option.value));
  for (const [value, text] of values) if (!known.has(value)) select.append(el("option", { value }, text));
};

const passes = () => {
  const wanted = (name) => controls.elements[name].value.trim();
  const [task, occasion, success, stop] = [wanted("task").toLowerCase(), wanted("occasion"), wanted("success"), wanted("stop")];
  const limits = ["reward", "turns", "tokens"].flatMap((name) => {
    const [low, high] = [wanted(`${name}-low`), wanted(`${name}-high`)];
    return [low === "" ? null : (row) => row[name] >= Number(low), high === "" ? null : (row) => row[name] <= Number(high)];
  });
  const tests = [
    task && ((row) => row.task.toLowerCase().includes(task)),
    occasion && ((row) => String(row.file.index) === occasion),
    success && ((row) => row.success === (success === "yes")),
    stop && ((row) => row.stop === stop),
    ...limits,
  ].filter(Boolean);
  return (row) => tests.every((test) => test(row));
};

const drawList = () => {
  fill("occasion", data.files.map((file) => [String(file.index), nameOf(file)]));
  fill("stop", [...new Set(data.rows.map((row) => row.stop))].sort().map((stop) => [stop, words(stop)]));
  list.order = data.rows.filter(passes());
  const column = COLUMNS.find((one) => one.key === list.sort);
  if (column) {
    const sign = list.down ? -1 : 1;
    const compare = (one, other) => (one < other ? -sign : one > other ? sign : 0);
    list.order.sort((one, other) => compare(column.value(one), column.value(other)));
  }
  for (const head of tableHead.children) {
    const active = column && head.firstChild.dataset.sort === column.key;
    if (active) head.setAttribute("aria-sort", list.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  const pages = Math.max(1, Math.ceil(list.order.length / PAGE_ROWS));
  list.page = Math.min(list.page, pages - 1);
  const first = list.page * PAGE_ROWS;
  const shown = list.order.slice(first, first + PAGE_ROWS);
  const focused = tableBody.contains(document.activeElement) ? document.activeElement.closest("tr") : null;
  const again = focused && focused.dataset.place;
  put(tableBody, ...shown.map(listRow));
  const back = again && tableBody.querySelector(`[data-place="${again}"] button`);
  if (back) back.focus();
  const total = data.rows.length;
  const several = (count) => `${number(count)} episode${count === 1 ? "" : "s"}`;
  const part = list.order.length === total ? several(total) : `${number(list.order.length)} of ${several(total)}`;
  const solved = list.order.filter((row) => row.success).length;
  const waiting = data.files.some((file) => !file.done) && data.loading ? ", more are being read" : "";
  tableStatus.textContent = total || waiting
    ? `${part}${waiting}; ${number(solved)} solved`
    : settings.live
      ? "No episode yet. Those of the first update appear here as soon as it is done."
      : "There are no episodes here.";
  if (data.problem) tableStatus.append(` ${data.problem}`);
  put(pager);
  if (pages > 1) {
    const turn = (by, title) => el("button", { type: "button", class: "plain", disabled: list.page + by < 0 || list.page + by >= pages, onclick: () => ((list.page += by), drawList()) }, title);
    pager.append(turn(-1, "Previous"), el("span", {}, `${number(first + 1)} to ${number(first + shown.length)} of ${number(list.order.length)}`), turn(1, "Next"));
  }
};

const listRow = (row) => {
  const cells = COLUMNS.map((column) => {
    const text = column.shown ? column.shown(row) : column.value(row);
    if (column.key === "task") return el("td", { class: "task" }, el("button", { type: "button", class: "open" }, text), row.seed === null ? null : el("span", { class: "seed" }, ` seed ${row.seed}`), row.greedy ? el("span", { class: "chip" }, "greedy") : null, row.fault ? el("span", { class: "chip bad" }, "fault") : null);
    if (column.key === "success") return el("td", {}, el("span", { class: `badge ${row.success ? "good" : "bad"}` }, text));
    return el("td", { class: column.class }, text);
  });
  return el("tr", { "data-place": `${row.file.index}-${row.n}`, onclick: () => go(`episode/${row.file.index}/${row.n}`) }, cells);
};

const moveInList = (event) => {
  const row = event.target.closest("tr");
  const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
  if (!next) return;
  event.preventDefault();
  next.querySelector("button").focus();
};
