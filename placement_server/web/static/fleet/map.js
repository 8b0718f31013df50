// A map of hosts: a cell for each on a canvas, coloured by what is used.

import { element } from "../dom.js";
import { share } from "./hosts.js";

export const STEPS = 5;
const LARGEST = 28;
const SMALLEST = 5;

/** Return the name of the colour for a share of use: a step, or full. */
export function level(used) {
  if (used === null) return "none";
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

  /** Draw hosts of a fleet by their use of a class; those in `marked`, where it is given, stand out. */
  draw(fleet, hosts, resourceClass, label, marked = null) {
    this.hosts = hosts;
    this.canvas.setAttribute("aria-label", label);
    this.repaint = () => this.#paint(fleet, resourceClass, marked);
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
    this.size = Math.max(SMALLEST, Math.min(LARGEST, fitting));
    this.columns = Math.max(1, Math.floor(this.width / this.size));
    const height = Math.max(1, Math.ceil(this.hosts.length / this.columns)) * this.size;
    const scale = devicePixelRatio;
    this.canvas.width = this.width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const gap = this.size > 8 ? 2 : 1;
    const colours = palette(this.element);
    this.hosts.forEach((host, place) => {
      const left = (place % this.columns) * this.size;
      const top = Math.floor(place / this.columns) * this.size;
      const isFaint = marked !== null && !marked.has(host.uuid);
      context.globalAlpha = isFaint ? 0.25 : 1;
      context.fillStyle = colours[level(share(host, resourceClass))];
      context.fillRect(left, top, this.size - gap, this.size - gap);
      const inner = this.size - gap;
      if (host.isDisabled) cross(context, left, top, inner, colours);
      if (fleet.isSilent(host)) {
        context.strokeStyle = colours.bad;
        context.lineWidth = Math.max(1, this.size / 9);
        context.setLineDash([inner / 4, inner / 8]);
        context.strokeRect(left + 1, top + 1, inner - 2, inner - 2);
        context.setLineDash([]);
      }
      if (marked !== null && !isFaint) {
        context.strokeStyle = colours.mark;
        context.lineWidth = 2;
        context.strokeRect(left + 1, top + 1, inner - 2, inner - 2);
      }
    });
  }

  #under(event) {
    const column = Math.floor(event.offsetX / this.size);
    const place = Math.floor(event.offsetY / this.size) * this.columns + column;
    return column < this.columns ? this.hosts[place] ?? null : null;
  }
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
  const names = ["none", "full", "mark", "bad", "ground", "ink", ...Array.from({ length: STEPS }, (_, step) => `use-${step}`)];
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
    [`use-${step}`, `${(100 / STEPS) * step} to ${(100 / STEPS) * (step + 1)} %`]
  ));
  return element("ul", { class: "legend", "aria-label": "Cells of the map, by what is in use" },
    [...shares, ["full", "full"], ["crossed", "disabled"], ["silent", "agent silent"], ...(hasMarks ? [["mark", "fits"]] : [])].map(([name, text]) => (
      element("li", {}, element("span", { class: `swatch ${name}` }), text)
    )));
}
