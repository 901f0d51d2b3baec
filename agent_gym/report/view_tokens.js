// Tokens: their colours, what is said of one under the pointer or the focus, the strip of the mask, and a rewritten context as a diff.
const MANY_TOKENS = 12000;
const SURPRISE = [-0.05, -0.4, -1.2, -3];
const origin = new WeakMap();

const kindOf = (segment, at, count) => {
  if (segment.who !== "a") return "e";
  return segment.mask && segment.mask.slice(at, at + count).some((one) => !one) ? "m" : "a";
};

const surprise = (segment, at, count) => {
  const given = segment.logprobs ? segment.logprobs.slice(at, at + count).filter((one) => one !== null) : [];
  if (!given.length) return 0;
  const least = Math.min(...given);
  const level = SURPRISE.findIndex((bound) => least >= bound);
  return level < 0 ? 4 : level;
};

const withBreaks = (text) => text.split("\n").flatMap((part, at) => (at ? [el("i", { class: "nl", "aria-hidden": "true" }), `\n${part}`] : [part]));

// The tokens of a segment in a <pre>. One of them is in the order of Tab; the arrows move from it to its neighbours.
const tokensOf = (segment, start, plain) => {
  const home = el("pre", { class: "tokens" });
  if (!segment.pieces.length) home.append(el("span", { class: "none" }, "(no token)"));
  if (plain && segment.who !== "a") {
    home.append(segment.pieces.map(([, text]) => text).join(""));
    return home;
  }
  let at = 0;
  for (const [count, text] of segment.pieces) {
    const kind = kindOf(segment, at, count);
    const level = kind === "e" ? "" : ` s${surprise(segment, at, count)}`;
    const span = el("span", { class: `t ${kind}${level}`, tabindex: at ? "-1" : "0" }, withBreaks(text));
    origin.set(span, { segment, at, count, place: start + at, kind });
    home.append(span);
    at += count;
  }
  return home;
};

const ROLES = {
  a: "sampled by the model: trained",
  m: "sampled by the model, masked: weight 0",
  e: "written by the environment: weight 0",
};
const tip = el("div", { id: "tip", role: "tooltip", hidden: true });

const describe = ({ segment, at, count, place, kind }) => {
  const lines = [`id ${segment.ids.slice(at, at + count).join(", ")} \u00b7 place ${place}`];
  if (kind !== "e") {
    const logprob = segment.logprobs && segment.logprobs[at];
    lines.push(typeof logprob === "number" ? `log-probability ${logprob.toFixed(4)} \u00b7 p ${Math.exp(logprob).toPrecision(3)}` : "log-probability not recorded");
    const advantage = segment.advantages && segment.advantages[at];
    lines.push(typeof advantage === "number" ? `advantage ${advantage >= 0 ? "+" : ""}${advantage.toFixed(4)}` : "advantage not recorded");
  }
  lines.push(kind === "a" && !segment.mask ? "sampled by the model; loss mask not recorded" : ROLES[kind]);
  return lines.join("\n");
};

let picked = null;
const hideTip = () => {
  tip.hidden = true;
  if (picked) {
    picked.classList.remove("picked");
    picked.removeAttribute("aria-describedby");
  }
  picked = null;
};
const showTip = (span) => {
  hideTip();
  tip.textContent = describe(origin.get(span));
  tip.hidden = false;
  picked = span;
  span.classList.add("picked");
  span.setAttribute("aria-describedby", "tip");
  const box = span.getClientRects()[0] || span.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(box.left, document.documentElement.clientWidth - size.width - 8))}px`;
  tip.style.top = `${box.top - size.height - 8 > 8 ? box.top - size.height - 8 : box.bottom + 8}px`;
};
const tokenAt = (event) => {
  const span = event.target.closest && event.target.closest(".t");
  return span && origin.has(span) ? span : null;
};

const watchTokens = () => {
  document.body.append(tip);
  document.addEventListener("mouseover", (event) => {
    const span = tokenAt(event);
    if (span) showTip(span);
    else if (!document.activeElement.classList.contains("t")) hideTip();
  });
  document.addEventListener("focusin", (event) => (tokenAt(event) ? showTip(tokenAt(event)) : hideTip()));
  document.addEventListener("click", (event) => {
    const span = tokenAt(event);
    if (!span) return;
    span.focus({ preventScroll: true });
    showTip(span);
  });
  document.addEventListener("scroll", () => document.activeElement.classList.contains("t") || hideTip(), { passive: true, capture: true });
  document.addEventListener("keydown", (event) => {
    const span = tokenAt(event);
    const step = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    if (!span || !step || !span[step]) return;
    event.preventDefault();
    span.setAttribute("tabindex", "-1");
    span[step].setAttribute("tabindex", "0");
    span[step].focus();
  });
};

const SVG = "http://www.w3.org/2000/svg";
const maskStrip = (segments) => {
  const runs = [];
  for (const segment of segments) {
    segment.ids.forEach((_, at) => {
      const kind = kindOf(segment, at, 1);
      if (runs.length && runs[runs.length - 1].kind === kind) runs[runs.length - 1].count += 1;
      else runs.push({ kind, count: 1 });
    });
  }
  const count = (kind) => runs.filter((run) => run.kind === kind).reduce((sum, run) => sum + run.count, 0);
  const total = count("a") + count("m") + count("e");
  const svg = document.createElementNS(SVG, "svg");
  const set = (target, pairs) => Object.entries(pairs).forEach(([key, value]) => target.setAttribute(key, value));
  set(svg, { viewBox: `0 0 ${Math.max(1, total)} 10`, preserveAspectRatio: "none", class: "strip", role: "img", "aria-label": "loss mask" });
  let at = 0;
  for (const run of runs) {
    const rect = document.createElementNS(SVG, "rect");
    set(rect, { x: at, y: 0, width: run.count, height: 10, class: `m-${run.kind}` });
    svg.append(rect);
    at += run.count;
  }
  const masked = count("m") ? `; ${number(count("m"))} sampled ones are masked` : "";
  const recorded = segments.some((segment) => segment.mask);
  const first = recorded ? `Loss mask: ${number(count("a"))} of ${number(total)} tokens are trained` : `Loss mask not recorded: ${number(count("a"))} of ${number(total)} tokens were sampled`;
  return el("figure", { class: "mask" }, svg, el("figcaption", {}, `${first}${masked}; the environment's ${number(count("e"))} have weight 0.`));
};

const tokenKey = () =>
  el(
    "ul",
    { class: "key" },
    el("li", {}, el("span", { class: "t a s1" }, "action"), " sampled by the model; the deeper, the less likely"),
    el("li", {}, el("span", { class: "t m s1" }, "masked"), " sampled by the model, weight 0"),
    el("li", {}, el("span", { class: "t e" }, "environment"), " weight exactly 0"),
  );

// -------------------------------------------------------------------------------------------- diff

// The longest common subsequence of two short lists, as [kind, item] with kind " ", "-" or "+".
const common = (before, after) => {
  const [n, m] = [before.length, after.length];
  if (n * m > 4e6) return [...before.map((one) => ["-", one]), ...after.map((one) => ["+", one])];
  const width = m + 1;
  const best = new Uint32Array((n + 1) * width);
  for (let i = n - 1; i >= 0; i -= 1) {
    for (let j = m - 1; j >= 0; j -= 1) {
      best[i * width + j] = before[i] === after[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < n || j < m) {
    if (i < n && j < m && before[i] === after[j]) {
      out.push([" ", before[i]]);
      i += 1;
      j += 1;
    } else if (j >= m || (i < n && best[(i + 1) * width + j] >= best[i * width + j + 1])) out.push(["-", before[i++]]);
    else out.push(["+", after[j++]]);
  }
  return out;
};

const trimmed = (before, after) => {
  let [head, tail] = [0, 0];
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  while (tail < before.length - head && tail < after.length - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  const same = (items) => items.map((one) => [" ", one]);
  const middle = common(before.slice(head, before.length - tail), after.slice(head, after.length - tail));
  return [...same(before.slice(0, head)), ...middle, ...same(before.slice(before.length - tail))];
};

// Lines first, then tokens within what changed: long prompts stay quick, and a changed word is a changed word.
const diffTokens = (before, after) => {
  const lines = (pieces) => {
    const out = [[]];
    for (const piece of pieces) {
      out[out.length - 1].push(piece);
      if (piece.includes("\n")) out.push([]);
    }
    return out.filter((line) => line.length);
  };
  const glue = "\u0000";
  const whole = trimmed(lines(before).map((line) => line.join(glue)), lines(after).map((line) => line.join(glue)));
  const out = [];
  let [gone, come] = [[], []];
  const settle = () => {
    out.push(...trimmed(gone, come));
    [gone, come] = [[], []];
  };
  for (const [kind, line] of whole) {
    const pieces = line.split(glue);
    if (kind === "-") gone.push(...pieces);
    else if (kind === "+") come.push(...pieces);
    else {
      settle();
      out.push(...pieces.map((piece) => [" ", piece]));
    }
  }
  settle();
  return out;
};

const KEEP = 24;
const diffView = (before, after) => {
  const runs = [];
  for (const [kind, text] of diffTokens(before, after)) {
    if (runs.length && runs[runs.length - 1].kind === kind) runs[runs.length - 1].texts.push(text);
    else runs.push({ kind, texts: [text] });
  }
  const count = (kind) => runs.filter((run) => run.kind === kind).reduce((sum, run) => sum + run.texts.length, 0);
  const home = el("pre", { class: "tokens diff", tabindex: "0", "aria-label": "difference between the context before and the one that replaced it" });
  runs.forEach((run, at) => {
    if (run.kind !== " ") return home.append(el(run.kind === "-" ? "del" : "ins", {}, withBreaks(run.texts.join(""))));
    const [left, right] = [at ? KEEP : 0, at < runs.length - 1 ? KEEP : 0];
    const hidden = run.texts.length - left - right;
    if (hidden <= KEEP) return home.append(el("span", { class: "same" }, withBreaks(run.texts.join(""))));
    home.append(el("span", { class: "same" }, withBreaks(run.texts.slice(0, left).join(""))));
    const gap = el("button", { type: "button", class: "gap", onclick: () => gap.replaceWith(el("span", { class: "same" }, withBreaks(run.texts.slice(left, left + hidden).join("")))) }, `${number(hidden)} unchanged tokens`);
    home.append(gap, el("span", { class: "same" }, withBreaks(right ? run.texts.slice(-right).join("") : "")));
    return null;
  });
  return el("div", { class: "diff-box" }, el("p", { class: "sub" }, el("del", {}, `${number(count("-"))} tokens went`), " ", el("ins", {}, `${number(count("+"))} came`), ` ${number(count(" "))} stayed`), home);
};
