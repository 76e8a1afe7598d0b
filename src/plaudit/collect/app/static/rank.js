// A ranking by drag, by keys and by buttons. The numbers in the lists are what is sent.
const list = document.getElementById("ranking");
const said = document.getElementById("rank-said");
const ties = list.dataset.ties === "yes";
const cards = () => [...list.querySelectorAll(".answer")];
const select = (card) => card.querySelector("select");
const number = (card) => Number(select(card).value) || Infinity;
const letter = (card) => "ABCDEFGHI"[card.dataset.place];
const words = (text, card) => text.replace("{letter}", letter(card)).replace("{place}", select(card).value);

function sortByNumber() {
  const sorted = cards().map((card, at) => [number(card), at, card]);
  sorted.sort(([a, i], [b, j]) => (a === b ? i - j : a - b));
  list.append(...sorted.map(([, , card]) => card));
}

function set(card, value) {
  select(card).value = value;
}

function tell(card) {
  said.textContent = words(list.dataset.moved, card);
  list.dispatchEvent(new Event("input", { bubbles: true }));
}

// Numbers by where the cards lie, after one was moved: all above it are ranked, and ties of others stay.
function renumber(moved) {
  const all = cards();
  const at = all.indexOf(moved);
  const before = all.map(number);
  let place = 0;
  all.forEach((card, index) => {
    if (index > at && before[index] === Infinity) return set(card, "");
    const tied = index > 0 && card !== moved && all[index - 1] !== moved;
    if (!tied || before[index] === Infinity || before[index] !== before[index - 1]) place += 1;
    set(card, place);
  });
  tell(moved);
}

function shift(card, step) {
  sortByNumber();
  const all = cards();
  const other = all[all.indexOf(card) + step];
  if (other) step < 0 ? other.before(card) : other.after(card);
  renumber(card);
}

// A number by hand: the order follows it.
function give(card, value) {
  set(card, value);
  if (!ties && value) {
    cards().filter((other) => other !== card && select(other).value === value).forEach((other) => set(other, ""));
  }
  sortByNumber();
  tell(card);
}

for (const card of cards()) {
  card.tabIndex = 0;
  const moves = document.createElement("span");
  moves.className = "moves";
  for (const [step, sign, text] of [[-1, "↑", list.dataset.up], [1, "↓", list.dataset.down]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = sign;
    button.ariaLabel = words(text, card);
    button.addEventListener("click", () => {
      shift(card, step);
      button.focus();
    });
    moves.append(button);
  }
  card.querySelector(".place").append(moves);
  card.addEventListener("keydown", (event) => {
    if (event.target !== card || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") shift(card, event.key === "ArrowUp" ? -1 : 1);
    else if (/^[0-9]$/.test(event.key) && Number(event.key) <= cards().length) give(card, event.key === "0" ? "" : event.key);
    else return;
    event.preventDefault();
    card.focus();
  });
  drag(card, card.querySelector("h2"));
}

function drag(card, handle) {
  let held = false;
  handle.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    sortByNumber();
    held = true;
    handle.setPointerCapture(event.pointerId);
    card.classList.add("dragged");
    event.preventDefault();
  });
  handle.addEventListener("pointermove", (event) => {
    if (!held) return;
    const other = cards().find((one) => {
      const { top, bottom } = one.getBoundingClientRect();
      return one !== card && event.clientY > top && event.clientY < bottom;
    });
    if (!other) return;
    const { top, height } = other.getBoundingClientRect();
    // Over its middle, or cards of unequal height would change places for ever.
    if (event.clientY < top + height / 2) other.before(card);
    else other.after(card);
    // Moved in the page it loses the pointer.
    handle.setPointerCapture(event.pointerId);
  });
  const end = () => {
    if (!held) return;
    held = false;
    card.classList.remove("dragged");
    renumber(card);
  };
  handle.addEventListener("pointerup", end);
  handle.addEventListener("pointercancel", end);
}

list.classList.add("live");
document.getElementById("rank-how").hidden = false;
document.getElementById("task").addEventListener("restored", sortByNumber);
sortByNumber();
