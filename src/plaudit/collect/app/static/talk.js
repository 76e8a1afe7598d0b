// A message and its answers as they are written: two of them at one pace, so that neither looks quicker.
const form = document.getElementById("task");
const data = form.dataset;
const message = document.getElementById("message");
const writing = document.getElementById("writing");
const box = document.getElementById("sending");
const button = document.getElementById("say");
const TRIES = 3;
const compared = Number(data.answers) > 1;

function card(place) {
  const made = document.createElement("section");
  made.className = "card answer";
  const title = document.createElement("h2");
  title.className = "label";
  title.textContent = compared ? data.answer.replace("{letter}", "ABCDEFGHI"[place]) : data.assistant;
  const text = document.createElement("div");
  text.className = "text live-answer";
  text.dir = "auto";
  made.append(title, text);
  return made;
}

function show() {
  document.getElementById("live")?.remove();
  const answers = document.createElement("div");
  answers.id = "live";
  answers.className = compared ? "answers" : "";
  answers.append(...Array.from({ length: Number(data.answers) }, (_, place) => card(place)));
  writing.after(answers);
  return [...answers.querySelectorAll(".text")];
}

// One line of JSON after the other, whatever pieces the network makes of them.
async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

function fail(words) {
  box.textContent = words;
  box.hidden = false;
  document.getElementById("live")?.remove();
}

// Whether the turn is over, for good or with words that say why not; else it is tried again.
async function attempt(content) {
  const headers = { "Content-Type": "application/json", "X-Form-Token": form.elements.form_token.value };
  const answer = await fetch("/label/stream", { method: "POST", headers, body: JSON.stringify(content) });
  if (!answer.ok) {
    const { error } = await answer.json();
    fail(error.message);
    return true;
  }
  const texts = show();
  for await (const part of lines(answer.body)) {
    if (part.error) {
      fail(part.error.message);
      return true;
    }
    if (part.words) texts[part.place].textContent += part.words;
    if (part.answers) part.answers.forEach((words, place) => (texts[place].textContent = words));
    if (part.turn) {
      form.dispatchEvent(new Event("taken"));
      location.assign(`/label?at=${data.assignment}`);
      return true;
    }
  }
  return false;
}

async function say() {
  const content = { assignment: data.assignment, key: `${form.elements.key.value}-turn`, message: message.value };
  box.hidden = true;
  writing.hidden = false;
  button.disabled = true;
  message.readOnly = true;
  try {
    for (let tried = 0; tried < TRIES; tried += 1) {
      try {
        // The same key: what was answered already comes again, and is not asked for twice.
        if (await attempt(content)) return;
      } catch {
        fail(data.again);
        await new Promise((done) => setTimeout(done, 1000 * 2 ** tried));
      }
    }
  } finally {
    writing.hidden = true;
    button.disabled = false;
    message.readOnly = false;
  }
}

// Before send.js, which leaves alone what is taken care of.
form.addEventListener(
  "submit",
  (event) => {
    if (event.submitter !== button || !button) return;
    event.preventDefault();
    if (message.value.trim()) say();
    else message.focus();
  },
  { capture: true },
);
document.getElementById("turns")?.lastElementChild?.scrollIntoView({ block: "nearest" });
