// Use of the fleet over the last day and week, drawn, and when it is full if it goes on like that.

import { readOwn } from "../api.js";
import { count, element, percent } from "../dom.js";

const DAY = 24 * 60;
const WEEK = 7 * DAY;
/** A line over less than this says nothing about days. */
const LEAST_MINUTES = DAY;
/** The part of the variance that a line must explain to be believed. */
const LEAST_FIT = 0.7;
const MOST_DAYS = 365;
const READ_MILLISECONDS = 60_000;
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [240, 56];

/** A section that shows the use of one class; `draw` may be called as often as the fleet changes. */
export class UseHistory {
  constructor(signal) {
    this.signal = signal;
    this.element = element("section", { class: "history", "aria-label": "Use over time" });
    this.of = null;
    this.readAt = 0;
  }

  async draw(resourceClass) {
    if (this.of === resourceClass && Date.now() - this.readAt < READ_MILLISECONDS) return;
    this.of = resourceClass;
    this.readAt = Date.now();
    try {
      const history = await readOwn("use", [["resource_class", resourceClass]], this.signal);
      if (this.of === resourceClass) this.element.replaceChildren(...parts(history));
    } catch {
      // That the server is away is said by what follows the changes.
      this.readAt = 0;
    }
  }
}

function parts({ minutes, used, capacity }) {
  if (minutes.length < 2) return [];
  const last = minutes.at(-1);
  const days = daysUntilFull(minutes, used, capacity);
  return [
    ...[["Last day", DAY], ["Last week", WEEK]].map(([title, span]) => {
      const from = minutes.findIndex((minute) => minute >= last - span);
      const shares = used.slice(from).map((amount, place) => (capacity[from + place] ? amount / capacity[from + place] : 1));
      const text = `${title}: ${percent(Math.min(...shares))} to ${percent(Math.max(...shares))} in use`;
      return element("figure", {}, drawn(minutes.slice(from).map((minute) => (minute - last) / span + 1), shares, text),
        element("figcaption", {}, text));
    }),
    days === null ? null : element("p", { class: "summary" }, `Full in about ${count(days, "day")}, if use grows as in the last week.`),
  ].filter(Boolean);
}

function drawn(places, shares, text) {
  const made = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": text })) made.setAttribute(name, value);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", places.map((place, at) => (
    `${(place * WIDTH).toFixed(1)},${((1 - Math.min(1, shares[at])) * (HEIGHT - 2) + 1).toFixed(1)}`)).join(" "));
  made.append(line);
  return made;
}

/** Return in how many days the capacity is used, by a line through the last week; null where none fits or it does not rise. */
export function daysUntilFull(minutes, used, capacity) {
  const [amount, last] = [minutes.length, minutes.at(-1)];
  if (amount < 3 || last - minutes[0] < LEAST_MINUTES) return null;
  const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / amount;
  const [meanMinute, meanUsed] = [mean(minutes), mean(used)];
  const spread = mean(minutes.map((minute) => (minute - meanMinute) ** 2));
  const together = mean(minutes.map((minute, at) => (minute - meanMinute) * (used[at] - meanUsed)));
  const variance = mean(used.map((number) => (number - meanUsed) ** 2));
  const slope = together / spread;
  if (!(slope > 0) || (together * together) / (spread * variance) < LEAST_FIT) return null;
  const days = Math.ceil((capacity.at(-1) - used.at(-1)) / slope / DAY);
  return days > 0 && days <= MOST_DAYS ? days : null;
}
