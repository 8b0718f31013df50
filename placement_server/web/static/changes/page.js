// The page of what changed: who got, lost or changed what, when and by whom, as it happens.

import { element, entitle, field, pageAddress, renew } from "../dom.js";
import { follow } from "../following.js";
import { past, pastTable } from "./past.js";

const MOST = 200;
/** What is searched for is not there, or cannot be. */
const REFUSED = new Set([400, 404]);

export async function show(page, { query, signal }) {
  entitle("What changed");
  const inputs = Object.fromEntries(["host", "consumer", "name"].map((key) => [key, element("input", {
    type: "search", autocomplete: "off", spellcheck: "false", value: query.get(key) ?? "", change: () => search(),
  })]));
  let isPaused = false;
  const pause = element("button", { type: "button", "aria-pressed": "false", click: () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
    if (!isPaused) search();
  } }, "Pause");
  const failure = element("p", { class: "failure", role: "alert", hidden: true });
  const content = element("div");
  page.append(
    element("h1", {}, "What changed"),
    element("form", { class: "filters", submit: (event) => { event.preventDefault(); search(); }, "aria-label": "Search" },
      field("Host, its name or uuid", inputs.host), field("Consumer", inputs.consumer),
      field("Class, trait or aggregate", inputs.name),
      element("div", { class: "field last" }, element("button", {}, "Search")),
      element("div", { class: "field last" }, pause)),
    failure,
    content,
  );
  const asked = () => Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value.trim()]));

  async function search() {
    history.replaceState(null, "", pageAddress("changes", [], asked()));
    await refresh();
  }

  async function refresh(isWanted = () => true) {
    failure.hidden = true;
    try {
      const answer = await past(asked(), MOST, signal);
      if (isWanted()) renew(content, () => content.replaceChildren(pastTable(answer)));
    } catch (error) {
      if (signal.aborted || !REFUSED.has(error.status)) throw error;
      failure.textContent = error.message;
      failure.hidden = false;
      content.replaceChildren();
    }
  }

  await follow({
    signal,
    onStart: () => refresh(),
    onChanges: async () => { if (!isPaused) await refresh(() => !isPaused); },
  });
}
