// A map of hosts: a cell for each on a canvas, coloured by what is used.

import { element, percent } from "../dom.js";
import { share } from "./hosts.js";

export const STEPS = 5;
const LARGEST = 28;
const SMALLEST = 5;
/** So few hosts have cells with their names. */
const MOST_NAMED = 40;
const NAMED = { width: 176, height: 52 };

/** Return the name of the colour for a share of use: nothing, a step, or full. */
export function level(used) {
  if (used === null) return "none";
  if (used === 0) return "idle";
  return used >= 1 ? "full" : `use-${Math.min(STEPS - 1, Math.floor(used * STEPS))}`;
}

export class HostMap {
  /** `height` is the part of the window that it may take. `onPoint` gets the event and the host under the pointer, or null; `onPick` the host clicked. */
  constructor({ onPoint, onPick, height = 0.6 }) {
    this.hosts = [];
    this.height = height;
    this.canvas = element("canvas", {
      role: "img",
      mousemove: (event) => {
        const host = this.#under(event);
        this.canvas.classList.toggle("over", host !== null);
        onPoint(event, host);
      },
      mouseleave: (event) => onPoint(event, null),
      click: (event) => {
        const host = this.#under(event);
        if (host) onPick(host);
      },
    });
    this.element = element("div", { class: "map" }, this.canvas);
  }

  /** Draw hosts of a fleet by their use of a class; those in `marked`, where it is given, stand out. `arrows` are pairs of uuids. */
  draw(fleet, hosts, resourceClass, label, marked = null, arrows = []) {
    this.hosts = hosts;
    this.canvas.setAttribute("aria-label", label);
    this.repaint = () => {
      this.#paint(fleet, resourceClass, marked);
      for (const pair of arrows) this.#arrow(...pair);
    };
    this.repaint();
  }

  /** Draw again when the width or the colours change, until the signal. */
  watch(signal) {
    const again = () => this.repaint?.();
    const observer = new ResizeObserver(() => { if (this.element.clientWidth !== this.width) again(); });
    observer.observe(this.element);
    signal.addEventListener("abort", () => observer.disconnect());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again, { signal });
  }

  #paint(fleet, resourceClass, marked) {
    this.width = this.element.clientWidth;
    const rows = Math.max(150, innerHeight * this.height);
    const fitting = Math.floor(Math.sqrt((this.width * rows) / Math.max(1, this.hosts.length)));
    const isNamed = this.hosts.length <= MOST_NAMED;
    const size = Math.max(SMALLEST, Math.min(LARGEST, fitting));
    this.cell = isNamed ? NAMED : { width: size, height: size };
    this.columns = Math.max(1, Math.floor(this.width / this.cell.width));
    const height = Math.max(1, Math.ceil(this.hosts.length / this.columns)) * this.cell.height;
    const scale = devicePixelRatio;
    this.canvas.width = this.width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const gap = isNamed ? 4 : size > 8 ? 2 : 1;
    const colours = palette(this.element);
    this.hosts.forEach((host, place) => {
      const left = (place % this.columns) * this.cell.width;
      const top = Math.floor(place / this.columns) * this.cell.height;
      const [width, inner] = [this.cell.width - gap, this.cell.height - gap];
      const isFaint = marked !== null && !marked.has(host.uuid);
      context.globalAlpha = isFaint ? 0.25 : 1;
      const used = share(host, resourceClass);
      context.fillStyle = colours[level(used)];
      context.fillRect(left, top, width, inner);
      if (used === 0) {
        context.strokeStyle = colours["use-3"];
        context.lineWidth = 1;
        context.strokeRect(left + 0.5, top + 0.5, width - 1, inner - 1);
      }
      if (isNamed) write(context, host.name, used, left + 10, top, width - 20, colours);
      if (host.isDisabled) cross(context, left + width - inner, top, inner, colours);
      if (marked !== null && !isFaint) {
        context.strokeStyle = colours.mark;
        context.lineWidth = 2;
        context.strokeRect(left + 1, top + 1, width - 2, inner - 2);
      }
      if (fleet.isSilent(host)) {
        context.strokeStyle = colours.bad;
        context.lineWidth = Math.max(1, size / 9);
        context.setLineDash([inner / 4, inner / 8]);
        context.strokeRect(left + 1, top + 1, width - 2, inner - 2);
        context.setLineDash([]);
      }
    });
  }

  #arrow(from, to) {
    const middles = [from, to].map((uuid) => {
      const place = this.hosts.findIndex((host) => host.uuid === uuid);
      return place < 0 ? null : [(place % this.columns + 0.5) * this.cell.width, (Math.floor(place / this.columns) + 0.5) * this.cell.height];
    });
    if (middles.includes(null)) return;
    const [[left, top], [right, bottom]] = middles;
    const angle = Math.atan2(bottom - top, right - left);
    const context = this.canvas.getContext("2d");
    const colours = palette(this.element);
    for (const [colour, width] of [[colours.ground, 6], [colours.mark, 3]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(left, top);
      context.lineTo(right, bottom);
      for (const side of [-0.5, 0.5]) {
        context.moveTo(right - 12 * Math.cos(angle + side), bottom - 12 * Math.sin(angle + side));
        context.lineTo(right, bottom);
      }
      context.stroke();
    }
  }

  #under(event) {
    const column = Math.floor(event.offsetX / this.cell.width);
    const place = Math.floor(event.offsetY / this.cell.height) * this.columns + column;
    return column < this.columns ? this.hosts[place] ?? null : null;
  }
}

/** Write a name into a cell, with what is used, in the one of two colours that stands out from the cell. */
function write(context, name, used, left, top, width, colours) {
  const light = (colour) => colour.match(/[\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
  const distance = (colour) => Math.abs(light(colour) - light(context.fillStyle.startsWith("#") ? rgb(context.fillStyle) : context.fillStyle));
  context.fillStyle = distance(colours.ink) > distance(colours.ground) ? colours.ink : colours.ground;
  context.font = "600 14px system-ui, sans-serif";
  let shown = name;
  while (shown.length > 1 && context.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
  context.fillText(shown, left, top + 20);
  context.font = "13px system-ui, sans-serif";
  context.fillText(used === null ? "has none" : percent(used), left, top + 38);
}

function rgb(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16)).join(" ");
}

/** Cross a cell out, in a colour that stands out from any use. */
function cross(context, left, top, size, colours) {
  for (const [colour, width] of [[colours.ground, size / 4], [colours.ink, size / 9]]) {
    context.strokeStyle = colour;
    context.lineWidth = Math.max(1, width);
    context.beginPath();
    context.moveTo(left + 1, top + 1);
    context.lineTo(left + size - 1, top + size - 1);
    context.moveTo(left + size - 1, top + 1);
    context.lineTo(left + 1, top + size - 1);
    context.stroke();
  }
}

/** Return the colours of the style sheet by their names, as they are in light or in dark. */
function palette(where) {
  const names = ["none", "idle", "full", "mark", "bad", "ground", "ink", ...Array.from({ length: STEPS }, (_, step) => `use-${step}`)];
  const probe = element("span", { hidden: true });
  where.append(probe);
  const colours = Object.fromEntries(names.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  return colours;
}

/** Return the explanation of the colours. */
export function legend(hasMarks = false) {
  const shares = Array.from({ length: STEPS }, (_, step) => (
    [`use-${step}`, step ? `${(100 / STEPS) * step} to ${(100 / STEPS) * (step + 1)} %` : `up to ${100 / STEPS} %`]
  ));
  return element("ul", { class: "legend", "aria-label": "Cells of the map, by what is in use" },
    [["idle", "nothing in use"], ...shares, ["full", "full"], ["crossed", "disabled"], ["silent", "agent silent"], ...(hasMarks ? [["mark", "fits"]] : [])].map(([name, text]) => (
      element("li", {}, element("span", { class: `swatch ${name}` }), text)
    )));
}
