// Elements of the page. Texts become text nodes, so no name is ever read as markup.

/**
 * Return an element.
 * Of `attributes`, functions listen to the event of their name, and those that are null or false are left out.
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Give the page of the browser a title, with the name of the cloud where it has one. */
export function entitle(text) {
  const { cloud } = document.body.dataset;
  document.title = cloud ? `${text} · ${cloud}` : text;
}

/** Return a labelled form field. */
export function field(label, control) {
  return element("label", { class: "field" }, element("span", {}, label), control);
}

/** Return a link to a page of ours. */
export function pageLink(page, text, ...path) {
  return element("a", { href: pageAddress(page, path) }, text);
}

export function pageAddress(page, path = [], query = {}) {
  const parameters = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/${[page, ...path].map(encodeURIComponent).join("/")}${parameters ? `?${parameters}` : ""}`;
}

/** Give each cell the title of its column, which stands before it where a row is shown as a card. */
export function titleCells(titles, rows) {
  for (const row of rows) titles.forEach((title, column) => { row.cells[column].dataset.title = title; });
  return rows;
}

/** Replace what is within an element. The focus stays on what has the same name as before: the fleet changes all the time. */
export function renew(where, replace) {
  const had = where.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  replace();
  if (had === null || where.contains(document.activeElement)) return;
  const focusable = [...where.querySelectorAll("a, button, summary, [tabindex]")];
  focusable.find((made) => nameOf(made) === had)?.focus({ preventScroll: true });
}

function nameOf(made) {
  return made.getAttribute("aria-label") ?? made.textContent;
}

/** Return an element that is not seen; a screen reader says what is written into it. */
export function announcer() {
  return element("p", { class: "unseen", role: "status" });
}

const numberFormat = new Intl.NumberFormat("en");

export function number(value) {
  return numberFormat.format(value);
}

/** Bytes of one unit of a class, by the end of its name. */
const UNIT_BYTES = { _KB: 2 ** 10, _MB: 2 ** 20, _GB: 2 ** 30 };
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"]];
const sizeFormat = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Return what is used of a capacity, with the size of memory and disk: "2,048 of 8,192 (2 of 8 GiB)". */
export function usedOf(name, used, capacity) {
  const unitBytes = UNIT_BYTES[name.slice(-3)] ?? 0;
  const [size, unit] = SIZES.find(([bytes]) => bytes <= Math.max(used, capacity) * unitBytes) ?? [0, ""];
  const text = `${number(used)} of ${number(capacity)}`;
  if (size <= unitBytes) return text;
  const [usedSize, capacitySize] = [used, capacity].map((amount) => sizeFormat.format((amount * unitBytes) / size));
  return `${text} (${usedSize} of ${capacitySize} ${unit})`;
}

/** Return "3 hosts", or "1 host". */
export function count(amount, noun) {
  return `${number(amount)} ${noun}${amount === 1 ? "" : "s"}`;
}

export function percent(share) {
  if (share > 0 && share < 0.01) return "<1 %";
  return `${Math.floor(share * 100)} %`;
}
