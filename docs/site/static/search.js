"use strict";
/* Passages by BM25 over their words, headings weighing more; a user's other word for a thing counts as that thing. */

const SAME = {
  accumulate: "accumulation", adapter: "lora", adapters: "lora", api: "python", arguments: "options", bench: "benchmarks",
  bos: "template", checkpoint: "resume", checkpoints: "resume", claude: "judge openai", cluster: "torchrun", columns: "layouts",
  continue: "resume", crash: "resume killed", csv: "layouts", cuda: "gpu", deepspeed: "fsdp shard", distributed: "torchrun ranks",
  early: "stops stopping", eval: "evaluation", finetune: "sft", finetuning: "sft", flags: "options", format: "layouts",
  gpt: "openai judge", gpus: "parallel torchrun", hyperparameters: "settings", install: "pip", interrupt: "resume killed", kill: "resume",
  labeling: "labelling collect", llm: "model", logging: "metrics", lr: "rate", memory: "plan", multi: "several",
  offline: "hub", ollama: "openai server", oom: "memory plan", out: "memory plan", parquet: "layouts", patience: "stop",
  privacy: "personal delete", qlora: "bits lora", reproducibility: "bits seed", restart: "resume", rm: "reward", safety: "attack", slow: "speed",
  stop: "resume stopping", stopping: "stops", tensorboard: "report sinks", tune: "train", vllm: "server", wandb: "report sinks",
};
const WEAK = new Set("a an and are as at be by can do does for from how i if in into is it my of on or that the then there this to use using want what when where which why with you your".split(" "));
const REPOSITORY = 0.45, REFERENCE = 0.6, CHECK = 0.8;

function stem(word) {
  for (const end of ["ations", "ation", "ings", "ing", "ers", "er", "ies", "es", "ed", "s", "e", "y"])
    if (word.endsWith(end) && word.length - end.length >= 3) return word.slice(0, -end.length);
  return word;
}

function words(text) {
  return (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []);
}

function indexOf(passages) {
  const places = new Map(), lengths = [];
  passages.forEach(([page, title, , heading, text], p) => {
    const counts = new Map();
    const add = (part, weight) => words(part).forEach((word) => {
      const key = stem(word);
      counts.set(key, (counts.get(key) || 0) + weight);
    });
    add(page, 3); add(title, 3); add(heading, 4); add(text, 1);
    lengths.push([...counts.values()].reduce((sum, count) => sum + count, 0));
    for (const [key, count] of counts) {
      if (!places.has(key)) places.set(key, []);
      places.get(key).push([p, count]);
    }
  });
  return { passages, places, lengths, mean: lengths.reduce((a, b) => a + b, 0) / (lengths.length || 1) };
}

function prior(page) {
  if (page.startsWith("repository/")) return REPOSITORY;
  if (page.startsWith("api/") || page === "papers" || page === "algorithm-table") return REFERENCE;
  return page.startsWith("checks/") ? CHECK : 1;
}

/* The best passages of each page, best page first. */
function search(index, query) {
  let asked = [...new Set(words(query))];
  if (asked.some((word) => !WEAK.has(word))) asked = asked.filter((word) => !WEAK.has(word));
  const scores = new Map();
  let most = 0;
  for (const word of asked) {
    // A word counts as itself, or a little less as what plaudit calls it; the best of these counts.
    const forms = [[stem(word), 1], ...words(SAME[word] || "").map((same) => [stem(same), 0.7])];
    const best = new Map();
    let rarest = 0;
    for (const [form, weight] of forms) {
      const hits = index.places.get(form) || [...index.places.keys()].filter((key) => form.length > 3 && key.startsWith(form)).slice(0, 20).flatMap((key) => index.places.get(key));
      const idf = Math.log(1 + (index.passages.length - hits.length + 0.5) / (hits.length + 0.5));
      if (hits.length) rarest = Math.max(rarest, idf);
      for (const [p, count] of hits) {
        const value = weight * idf * (2.2 * count) / (count + 1.2 * (0.35 + 0.65 * index.lengths[p] / index.mean));
        best.set(p, Math.max(best.get(p) || 0, value));
      }
    }
    most += 1;
    for (const [p, value] of best) {
      const [sum, held] = scores.get(p) || [0, 0];
      scores.set(p, [sum + value, held + 1]);
    }
  }
  const pages = new Map();
  for (const [p, [sum, held]] of scores) {
    const page = index.passages[p][0];
    const score = sum * (held / most) * prior(page);
    if (!pages.has(page)) pages.set(page, []);
    pages.get(page).push([score, p]);
  }
  return [...pages].map(([page, hits]) => {
    hits.sort((a, b) => b[0] - a[0]);
    return { page, score: hits[0][0] + 0.25 * (hits[1] ? hits[1][0] : 0), hits: hits.slice(0, 3).map(([, p]) => p) };
  }).sort((a, b) => b.score - a.score);
}

/* Some words around the place where most of what was asked stands. */
function excerpt(text, query, width = 240) {
  const asked = new Set(words(query).filter((word) => !WEAK.has(word)).flatMap((word) => [word, ...words(SAME[word] || "")]).map(stem));
  const places = [...text.matchAll(/[\p{L}\p{N}]+/gu)].filter((match) => asked.has(stem(match[0].toLowerCase()))).map((match) => match.index);
  const start = places.map((at) => [places.filter((other) => other >= at && other < at + width).length, at]).sort((a, b) => b[0] - a[0] || a[1] - b[1])[0];
  const from = start ? Math.max(0, text.lastIndexOf(" ", Math.max(0, start[1] - 40))) : 0;
  const cut = text.slice(from, from + width).trim();
  return (from ? "… " : "") + cut + (from + width < text.length ? " …" : "");
}

function show(query) {
  const results = document.getElementById("search-results");
  results.replaceChildren();
  const make = (parent, tag, text) => parent.appendChild(Object.assign(document.createElement(tag), { textContent: text }));
  make(results, "h1", query ? `Search: ${query}` : "Search");
  if (!query) return make(results, "p", "Write some words into the field on the left.");
  const index = indexOf(PASSAGES);
  const found = search(index, query).slice(0, 15);
  if (!found.length) return make(results, "p", "No page has any of these words. All pages stand on the left; the glossary has the words.");
  const asked = new Set(words(query).flatMap((word) => [word, ...words(SAME[word] || "")]).map(stem));
  for (const { page, hits } of found) {
    const part = make(results, "section", "");
    part.className = "search-result";
    const title = make(make(part, "h2", ""), "a", PASSAGES[hits[0]][1]);
    title.href = `${page}.html`;
    for (const p of hits) {
      const [, , anchor, heading, text] = PASSAGES[p];
      const line = make(part, "p", "");
      if (anchor) make(line, "a", heading).href = `${page}.html#${anchor}`;
      if (anchor) line.append(" — ");
      for (const piece of excerpt(text, query).split(/([\p{L}\p{N}]+)/u))
        if (asked.has(stem(piece.toLowerCase())) && !WEAK.has(piece.toLowerCase())) make(line, "mark", piece);
        else line.append(piece);
    }
  }
}

if (typeof document === "undefined") module.exports = { indexOf, search, excerpt };
else document.addEventListener("DOMContentLoaded", () => show(new URLSearchParams(location.search).get("q") || ""));
