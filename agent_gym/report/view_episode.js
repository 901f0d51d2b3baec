// One episode: step by step as the model saw it, or whole; and two of them beside each other.
const view = { whole: false, diff: true, step: 0, current: null };

const outcomeOf = (episode) =>
  el(
    "p",
    { class: "outcome" },
    el("span", { class: `badge ${episode.success ? "good" : "bad"}` }, episode.success ? "solved" : "not solved"),
    ` reward ${number(episode.reward)}, ${number(episode.turns)} turn${episode.turns === 1 ? "" : "s"}, ended by ${words(episode.stop)}`,
  );

const factsOf = (episode) => {
  const facts = [["environment", episode.env], ["seed", episode.seed], ["group", episode.group], ["weights", `version ${episode.version}`], ["sampled tokens", number(episode.sampled)], ...Object.entries(episode.metrics).map(([name, value]) => [words(name), number(value)])];
  return el("dl", { class: "facts" }, facts.filter(([, value]) => value !== null && value !== "").map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
};

// Where the action of a step stands: its context, and its place among the segments of it.
const findStep = (episode, step) => {
  for (const [number_, context] of episode.contexts.entries()) {
    const at = context.findIndex((segment) => segment.who === "a" && segment.step === step);
    if (at >= 0) return { number: number_, context, at };
  }
  return null;
};
const textsOf = (segments) => segments.flatMap((segment) => segment.pieces.map(([, text]) => text));

const notesOf = (step) => {
  const notes = Object.entries(step.parts).filter(([, value]) => value).map(([name, value]) => `${words(name)} ${signed(value)}`);
  if (step.cut) notes.push("cut off");
  if (!step.valid) notes.push("invalid action");
  if (step.fault) notes.push("environment fault");
  return notes.map((note) => el("span", { class: "chip" }, note));
};

const blockOf = (title, class_, content, notes = []) => el("section", { class: `turn ${class_}` }, el("h4", {}, title, notes.length ? " " : null, notes), content);

const segmentBlock = (segment, start, plain, first) => {
  const count = `${number(segment.ids.length)} token${segment.ids.length === 1 ? "" : "s"}`;
  const title = segment.who === "a" ? `model, turn ${segment.step + 1}` : `${first ? "task" : "environment"}, ${count}`;
  return blockOf(title, segment.who === "a" ? "action" : "environment", tokensOf(segment, start, plain));
};

const promptBlocks = (segments, plain) => {
  let start = 0;
  return segments.map((segment, at) => {
    const made = segmentBlock(segment, start, plain, at === 0);
    start += segment.ids.length;
    return made;
  });
};

const rewriteOf = (episode, found) => {
  const old = episode.contexts[found.number - 1];
  const button = (diff, title) => el("button", { type: "button", class: "plain", "aria-pressed": String(view.diff === diff), onclick: () => ((view.diff = diff), redrawEpisode()) }, title);
  return el("div", { class: "rewritten" }, el("p", {}, "The environment rewrote the context before this step."), el("div", { class: "toggle" }, button(true, "As a diff"), button(false, "As the model saw it")), view.diff ? diffView(textsOf(old), textsOf(found.context.slice(0, found.at))) : null);
};

const oneStep = (episode, step) => {
  const found = findStep(episode, step);
  const facts = episode.steps[step];
  if (!found) return [el("p", { class: "empty" }, "This step has no action.")];
  const prompt = found.context.slice(0, found.at);
  const action = found.context[found.at];
  const before = prompt.reduce((sum, segment) => sum + segment.ids.length, 0);
  const plain = before > MANY_TOKENS;
  const rewritten = found.number > 0 && found.at === found.context.findIndex((segment) => segment.who === "a");
  const showPrompt = !(rewritten && view.diff);
  const answer = found.context[found.at + 1];
  const feedback = facts.feedback.trim() || (answer && answer.who === "e" ? textsOf([answer]).join("").trim() : "");
  return [
    maskStrip([...prompt, action]),
    rewritten ? rewriteOf(episode, found) : null,
    showPrompt ? blockOf(`prompt, as the model saw it: ${number(before)} tokens`, "prompt", el("div", { class: "from-end" }, el("div", {}, promptBlocks(prompt, plain)))) : null,
    blockOf(`action: ${number(action.ids.length)} tokens`, "action chosen", tokensOf(action, before, false)),
    blockOf(`reward ${signed(facts.reward)}`, "feedback", el("pre", {}, feedback || "(the environment said nothing)"), notesOf(facts)),
  ];
};

const wholeEpisode = (episode) => {
  const size = episode.contexts.flat().reduce((sum, segment) => sum + segment.ids.length, 0);
  const out = episode.contexts.map((context) => maskStrip(context));
  episode.contexts.forEach((context, at) => {
    if (at) out.push(el("p", { class: "rewritten" }, "The environment rewrote the context here."));
    const blocks = promptBlocks(context, size > MANY_TOKENS);
    context.forEach((segment, place_) => segment.who === "a" && blocks[place_].firstChild.append(" ", ...notesOf(episode.steps[segment.step])));
    out.push(...blocks);
  });
  return out;
};

const failed = (error) => el("p", { class: "empty" }, `This episode cannot be shown: ${error.message || error}`);

const openEpisode = async (file, n, step) => {
  const home = document.getElementById("episode");
  const fresh = !view.current || view.current.file !== file || view.current.n !== n;
  if (fresh) put(home, el("p", { class: "empty" }, "reading ..."));
  const wanted = (view.current = { file, n, episode: null });
  view.step = step;
  try {
    const episode = await loadEpisode(file, n);
    if (view.current !== wanted) return;
    view.current.episode = episode;
    redrawEpisode();
  } catch (error) {
    if (view.current === wanted) put(home, backButton(), failed(error));
  }
};

const backButton = () => el("button", { type: "button", class: "plain back", onclick: () => go("episodes") }, "All episodes");
const neighbour = (by) => {
  const at = list.order.findIndex((row) => row.file === view.current.file && row.n === view.current.n);
  return at < 0 ? undefined : list.order[at + by];
};
const turnEpisode = (by) => {
  const row = neighbour(by);
  if (row) go(`episode/${row.file.index}/${row.n}`);
};
const drawNeighbours = () => {
  for (const button of document.querySelectorAll("#episode [data-by]")) button.disabled = !neighbour(Number(button.dataset.by));
};
const turnStep = (by) => {
  const { file, n, episode } = view.current;
  const next = view.step + by;
  if (episode && next >= 0 && next < episode.steps.length) go(`episode/${file.index}/${n}/${next}`);
};

const redrawEpisode = () => {
  const { file, n, episode } = view.current;
  const home = document.getElementById("episode");
  const last = episode.steps.length - 1;
  const step = Math.max(0, Math.min(view.step, last));
  const press = (label, action, off, attributes = {}) => el("button", { type: "button", class: "plain", disabled: off, onclick: action, ...attributes }, label);
  const mode = (whole, title) => press(title, () => ((view.whole = whole), redrawEpisode()), false, { "aria-pressed": String(view.whole === whole), "data-mode": whole ? "whole" : "step" });
  const stepper = view.whole ? null : el("div", { class: "stepper" }, press("Previous step", () => turnStep(-1), step <= 0, { "data-turn": "-1" }), el("strong", {}, last < 0 ? "no step" : `step ${step + 1} of ${last + 1}`), press("Next step", () => turnStep(1), step >= last, { "data-turn": "1" }));
  const focused = home.contains(document.activeElement) ? document.activeElement.dataset : {};
  const kept = focused.turn ? `[data-turn="${focused.turn}"]` : focused.mode ? `[data-mode="${focused.mode}"]` : "";
  hideTip();
  put(home, el("div", { class: "bar" }, backButton(), el("span", { class: "grow" }), press("Previous episode", () => turnEpisode(-1), !neighbour(-1), { "data-by": "-1" }), press("Next episode", () => turnEpisode(1), !neighbour(1), { "data-by": "1" })),
    el("h2", { tabindex: "-1" }, `${episode.task}`),
    el("p", { class: "sub" }, `${nameOf(file)}, episode ${n + 1}`),
    outcomeOf(episode),
    factsOf(episode),
    tokenKey(),
    episode.decoded ? null : el("p", { class: "empty" }, "These ids are another tokenizer's than the one at hand, so they are shown as numbers; name it with --tokenizer."),
    el("div", { class: "bar" }, el("div", { class: "toggle", role: "group", "aria-label": "what is shown" }, mode(false, "Step by step"), mode(true, "Whole episode")), el("span", { class: "grow" }), stepper),
    el("article", { class: "transcript" }, view.whole ? wholeEpisode(episode) : last < 0 ? el("p", { class: "empty" }, "This episode has no step.") : oneStep(episode, step)),
    el("p", { class: "sub keys" }, "Keys: n and p step, ] and [ change the episode, Escape goes back; in the tokens, left and right."),
  );
  const again = kept && home.querySelector(kept);
  if (again && !again.disabled) again.focus();
};

const episodeKeys = (event) => {
  if (!view.current || !view.current.episode) return;
  const act = { n: () => turnStep(1), p: () => turnStep(-1), "]": () => turnEpisode(1), "[": () => turnEpisode(-1), Escape: () => go("episodes") }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
};

// -------------------------------------------------------------------------------------------- two beside each other

const side = async (home, file, n, heading) => {
  put(home, el("p", { class: "empty" }, "reading ..."));
  const wanted = (home.dataset.wanted = `${file.index} ${n}`);
  try {
    const episode = await loadEpisode(file, n);
    if (home.dataset.wanted !== wanted) return;
    put(home, el("header", {}, el("h3", {}, heading), outcomeOf(episode)), ...wholeEpisode(episode));
  } catch (error) {
    put(home, failed(error));
  }
};

// The places in the overview that show what training changed.
const mountPairs = () => {
  for (const home of document.querySelectorAll("#overview article[data-file]")) {
    const file = data.files.find((one) => one.run === 0 && one.name === home.dataset.file);
    if (file) side(home, file, Number(home.dataset.n), home.dataset.heading);
  }
};

const compare = { sides: [], task: "", only: null, picks: [0, 0], drawn: "" };

const defaultSides = () => {
  const named = (run, ...names) => names.map((name) => data.files.find((file) => file.run === run && file.name.startsWith(`${name}.`))).find(Boolean) || data.files.find((file) => file.run === run);
  if (settings.runs.length > 1) return [named(0, "final", "train"), named(1, "final", "train")];
  return [named(0, "warm_start", "before"), named(0, "final", "last_batch")];
};

const byTask = (file) => {
  const found = new Map();
  for (const row of file ? file.rows : []) found.set(row.key, [...(found.get(row.key) || []), row]);
  return found;
};

const drawCompare = () => {
  const home = document.getElementById("compare");
  if (!compare.sides.length || compare.sides.some((file) => !file)) compare.sides = defaultSides();
  const [left, right] = compare.sides.map(byTask);
  const differs = (key) => left.get(key)[0].success !== right.get(key)[0].success || left.get(key)[0].reward !== right.get(key)[0].reward;
  const both = [...left.keys()].filter((key) => right.has(key));
  const shown = compare.only && compare.only.checked ? both.filter(differs) : both;
  if (!shown.includes(compare.task)) compare.task = shown.find(differs) || shown[0] || "";
  const state = JSON.stringify([compare.sides.map((file) => file && [file.index, file.generation]), shown, compare.task, compare.picks, data.loading && data.files.some((file) => !file.done)]);
  if (state === compare.drawn) return;
  compare.drawn = state;
  const again = () => ((compare.picks = [0, 0]), drawCompare());
  const files = (at) => {
    const select = el("select", { onchange: () => ((compare.sides[at] = data.files[Number(select.value)]), again()), "data-side": at }, data.files.map((file) => el("option", { value: file.index, selected: file === compare.sides[at] }, nameOf(file))));
    return field(at ? "Right" : "Left", select);
  };
  if (!compare.only) compare.only = el("input", { type: "checkbox", onchange: again });
  const label = (key) => {
    const [a, b] = [left.get(key)[0], right.get(key)[0]];
    return `${a.task}${a.seed === null ? "" : ` seed ${a.seed}`}: ${number(a.reward)} \u2192 ${number(b.reward)}`;
  };
  const task = el("select", { "data-task": true, onchange: () => ((compare.task = task.value), again()) }, shown.map((key) => el("option", { value: key, selected: key === compare.task }, label(key))));
  const active = document.activeElement.dataset || {};
  const focus = active.task !== undefined ? "[data-task]" : active.side !== undefined ? `[data-side="${active.side}"]` : "";
  const waiting = data.loading && data.files.some((file) => !file.done);
  const nothing = waiting ? "reading ..." : both.length ? "The outcome is the same for every task." : "No task is in both; choose two other occasions.";
  const panels = [left, right].map((rows, at) => {
    const found = rows.get(compare.task) || [];
    const panel = el("article", { class: "transcript", "data-panel": at });
    const pick = Math.min(compare.picks[at], found.length - 1);
    const several = found.length > 1 ? el("div", { class: "toggle" }, found.slice(0, 8).map((row, place_) => el("button", { type: "button", class: "plain", "aria-pressed": String(place_ === pick), onclick: () => ((compare.picks[at] = place_), drawCompare()) }, row.greedy ? "greedy" : `sample ${place_ + 1 - found.slice(0, place_).filter((one) => one.greedy).length}`))) : null;
    if (found.length) side(panel, found[pick].file, found[pick].n, nameOf(found[pick].file));
    return el("div", { class: "side" }, several, panel);
  });
  put(home, el("h2", {}, "Side by side"),
    el("p", { class: "sub" }, settings.runs.length > 1 ? "The same task in both runs." : "The same task on two occasions."),
    el("form", { class: "filters card", "aria-label": "what is compared", onsubmit: (event) => event.preventDefault() }, files(0), files(1), field(`Task (${number(shown.length)})`, task, "grow"), el("label", { class: "tick" }, compare.only, " only where the outcome differs")),
    shown.length ? tokenKey() : null,
    shown.length ? el("div", { class: "pair" }, panels) : el("p", { class: "empty" }, nothing),
  );
  const back = focus && home.querySelector(focus);
  if (back) back.focus();
};
