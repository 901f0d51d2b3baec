// The page's data: settings, and episodes in pieces, out of blocks of this file or from the server on this machine. Text only ever becomes text nodes.
const el = (name, attributes, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
};

const put = (home, ...children) => home.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));

const block = (id) => {
  const holder = document.getElementById(id);
  return holder ? JSON.parse(holder.textContent) : null;
};
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const number = (value, digits = 3) => {
  if (typeof value !== "number") return "-";
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toFixed(digits)));
};
const signed = (value, digits = 3) => (typeof value === "number" && value >= 0 ? "+" : "") + number(value, digits);
const words = (value) => String(value).replaceAll("_", " ");

const settings = block("view");

// A block that stands further down may not have arrived yet.
const arrived = async (id) => {
  for (;;) {
    const found = block(id);
    if (found !== null || document.readyState !== "loading") return found;
    await pause(20);
  }
};

const fetched = async (path) => {
  const answer = await fetch(path, { cache: "no-store" });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error || `the server answered ${answer.status}`);
  return content;
};
const place = (file) => `${file.run}/${encodeURIComponent(file.name)}`;

const source = settings.served
  ? {
      rows: (file, first) => fetched(`/data/rows/${place(file)}/${first}`),
      episode: (file, n) => fetched(`/data/episode/${place(file)}/${n}`),
    }
  : {
      rows: async (file, first) => (await arrived(`i-${file.index}-${first}`)) || { rows: [], end: true, generation: 0 },
      episode: async (file, n) => {
        const found = await arrived(`e-${file.index}-${n}`);
        if (found === null) throw new Error("This episode is not part of this page; agent-gym view shows all.");
        return found;
      },
    };

// Every summary that has arrived, and what is still to come.
const data = { rows: [], files: [], loading: false, problem: "", listeners: [] };
const changed = () => data.listeners.forEach((listener) => listener());

const addFile = (entry) => {
  const file = { ...entry, index: data.files.length, rows: [], done: false, size: entry.size ?? 0 };
  data.files.push(file);
  return file;
};

const collect = () => {
  data.rows = data.files.flatMap((file) => file.rows);
};

const loadFile = async (file) => {
  for (;;) {
    const generation = file.generation;
    const piece = await source.rows(file, file.rows.length);
    if (settings.served && piece.generation !== generation) {
      file.generation = piece.generation;
      if (file.rows.length) {
        file.rows = [];
        continue;
      }
    }
    const first = file.rows.length;
    file.rows.push(...piece.rows.map((row, at) => ({ ...row, file, n: first + at, key: `${row.env} ${row.task} ${row.seed}` })));
    file.done = piece.end;
    collect();
    changed();
    if (piece.end) return;
    await pause(0);
  }
};

const loadAll = async () => {
  if (data.loading) return;
  data.loading = true;
  const problems = [];
  for (const file of data.files) {
    try {
      if (!file.done) await loadFile(file);
    } catch (error) {
      problems.push(`${nameOf(file)} could not be read further: ${error.message || error}`);
    }
  }
  data.problem = problems.join("; ");
  data.loading = false;
  changed();
};

const records = new Map();
const loadEpisode = async (file, n) => {
  const key = `${file.index} ${file.generation} ${n}`;
  if (!records.has(key)) {
    if (records.size > 40) records.delete(records.keys().next().value);
    records.set(key, source.episode(file, n));
    records.get(key).catch(() => records.delete(key));
  }
  return records.get(key);
};
const letterOf = (file) => (settings.runs.length > 1 ? settings.runs[file.run].letter : "");
const nameOf = (file) => `${letterOf(file) ? `${letterOf(file)}: ` : ""}${file.label}`;
