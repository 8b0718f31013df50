// Amounts of a provider: few units as squares, many as a bar, each part in the colour of who holds it.

import { element, number, usedOf } from "../dom.js";

const MOST_SQUARES = 64;
/** A store that many hosts share has thousands of holders; the rest are one part of the bar. */
const MOST_HOLDERS = 200;
/** So many holders of a device that is gone are named. */
const NAMED = 2;
/** Amounts of these have no units that anybody would count. */
const STUFF = new Set(["MEMORY_MB", "DISK_GB", "VGPU_DISPLAY_HEAD"]);

/** Return the figure of one amount; `title` is its name, `colours` those of the consumers. */
export function figure(provider, amount, title, colours) {
  const units = Math.max(amount.capacity, amount.used) + unused(amount);
  const isCounted = !STUFF.has(amount.name) && units <= MOST_SQUARES;
  const drawn = isCounted ? squares(provider, amount, colours) : bar(provider, amount, units, colours);
  return element("div", { class: "figure" },
    element("div", { class: "figure-title" }, element("span", {}, title), element("span", { class: "faint" }, state(provider, amount))),
    element("div", { role: "img", "aria-label": spoken(provider, amount, title), class: isCounted ? "squares" : "long bar" }, drawn));
}

/** Return what is reserved and not held: of a device that is gone, what is held stays and is all reserved. */
function unused(amount) {
  return amount.capacity > 0 ? amount.reserved : Math.max(0, amount.reserved - amount.used);
}

function state(provider, amount) {
  if (provider.isGone) {
    const holders = amount.held.slice(0, NAMED).map(({ consumer }) => consumer).join(", ");
    const more = amount.held.length > NAMED ? ` and ${number(amount.held.length - NAMED)} more` : "";
    return holders ? `gone, held by ${holders}${more}` : "gone";
  }
  if (amount.capacity === 0 && amount.used > 0) return `${number(amount.used)} held, none to give out`;
  const reserved = amount.reserved && !provider.isBroken ? `, ${number(amount.reserved)} reserved` : "";
  const broken = provider.isBroken ? ", broken" : "";
  const ratio = amount.ratio === 1 ? "" : `, ratio ${amount.ratio}`;
  return `${usedOf(amount.name, amount.used, amount.capacity)}${ratio}${reserved}${broken}`;
}

function spoken(provider, amount, title) {
  const named = amount.held.slice(0, MOST_HOLDERS).map(({ consumer, amount: part }) => `${number(part)} by ${consumer}`);
  const unnamed = amount.held.length - named.length;
  const held = [...named, ...(unnamed ? [`the rest by ${number(unnamed)} more`] : [])].join(", ");
  const inUse = provider.isGone ? "" : " in use";
  return `${title}: ${state(provider, amount)}${inUse}${held ? `: ${held}` : ""}`;
}

function squares(provider, amount, colours) {
  const made = amount.held.flatMap(({ consumer, amount: part }) => (
    Array.from({ length: part }, () => painted("square", consumer, colours))));
  const add = (length, kind) => {
    for (let unit = 0; unit < length; unit += 1) made.push(element("span", { class: `square ${kind}` }));
  };
  add(amount.used - made.length, "other");
  add(Math.max(0, amount.capacity - amount.used), "free");
  add(unused(amount), provider.isBroken ? "broken" : "reserved");
  return made;
}

function bar(provider, amount, units, colours) {
  const part = (made, size) => {
    made.style.width = `${units ? (100 * size) / units : 0}%`;
    return made;
  };
  const drawn = amount.held.slice(0, MOST_HOLDERS);
  const held = drawn.map((entry) => part(painted("part", entry.consumer, colours), entry.amount));
  const known = drawn.reduce((sum, entry) => sum + entry.amount, 0);
  return [
    ...held,
    part(element("span", { class: "part other" }), amount.used - known),
    part(element("span", { class: "part free" }), Math.max(0, amount.capacity - amount.used)),
    part(element("span", { class: `part ${provider.isBroken ? "broken" : "reserved"}` }), unused(amount)),
  ];
}

function painted(kind, consumer, colours) {
  const made = element("span", { class: kind });
  colours.paint(made, consumer);
  return made;
}
