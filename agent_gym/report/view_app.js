// What is shown follows the address behind #; a page that is served while training goes on asks for news.
const VIEWS = ["overview", "episodes", "episode", "compare"];
const go = (where) => {
  if (location.hash === `#/${where}`) route();
  else location.hash = `#/${where}`;
};

const route = () => {
  const [asked, ...rest] = location.hash.replace(/^#\//, "").split("/");
  const known = VIEWS.includes(asked) && document.getElementById(asked);
  const shown = known ? asked : settings.first;
  for (const name of VIEWS) {
    const home = document.getElementById(name);
    if (home) home.hidden = name !== shown;
  }
  const tab = shown === "episode" ? "episodes" : shown;
  for (const button of document.querySelectorAll("nav button")) {
    if (button.dataset.tab === tab) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  hideTip();
  const before = view.current && `${view.current.file.index}/${view.current.n}`;
  if (shown !== "episode") view.current = null;
  if (shown === "episode") {
    const file = data.files[Number(rest[0])];
    if (!file) return go("episodes");
    openEpisode(file, Number(rest[1]), Number(rest[2] || 0));
    if (before !== `${rest[0]}/${rest[1]}`) window.scrollTo(0, 0);
  }
  if (shown === "episodes") drawList();
  if (shown === "compare") drawCompare();
  return undefined;
};

const keys = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (!document.getElementById("episode").hidden) episodeKeys(event);
  else if (event.key === "/" && !document.getElementById("episodes").hidden) {
    event.preventDefault();
    controls.elements.task.focus();
  }
};

// ---------------------------------------------------------------------------------------- while training goes on

const heard = { overview: settings.overview, failures: 0 };

const news = async () => {
  const state = await fetched("/data/state");
  for (const entry of state.files) {
    const file = data.files.find((one) => one.run === entry.run && one.name === entry.name) || addFile(entry);
    if (file.generation !== entry.generation) [file.rows, file.done] = [[], false];
    else if (file.size !== entry.size) file.done = false;
    [file.generation, file.size] = [entry.generation, entry.size];
  }
  await loadAll();
  const home = document.getElementById("overview");
  if (home && state.overview !== heard.overview) {
    const answer = await fetch("/overview", { cache: "no-store" });
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    home.replaceChildren(...[...parsed.body.childNodes].map((node) => document.adoptNode(node)));
    heard.overview = state.overview;
    mountPairs();
  }
};

const listen = async () => {
  const sign = document.getElementById("live");
  while (heard.failures < 3) {
    await pause(settings.every);
    if (document.hidden) continue;
    try {
      await news();
      heard.failures = 0;
      sign.textContent = "live";
    } catch {
      heard.failures += 1;
    }
  }
  sign.textContent = "no longer live: training has ended or was stopped; agent-gym view shows the run";
  sign.classList.add("ended");
};

// ---------------------------------------------------------------------------------------- begin

settings.files.forEach(addFile);
watchTokens();
buildList(document.getElementById("episodes"));
const drawShown = () => {
  drawList();
  if (!document.getElementById("compare").hidden) drawCompare();
  if (view.current && view.current.episode) drawNeighbours();
};
let due = 0;
data.listeners.push(() => {
  if (due) return;
  due = requestAnimationFrame(() => {
    due = 0;
    drawShown();
  });
});
for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => go(button.dataset.tab));
window.addEventListener("hashchange", route);
document.addEventListener("keydown", keys);
route();
mountPairs();
requestAnimationFrame(() => setTimeout(loadAll, 0));
if (settings.live) listen();
