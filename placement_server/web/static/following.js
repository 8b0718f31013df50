// The feed of changes, followed for as long as a page is shown.

import { ApiError, NoAnswer, read } from "./api.js";

const WAIT_SECONDS = 30;
const AGAIN_MILLISECONDS = 2000;
/** For so long changes gather before they are read together. */
const GATHER_MILLISECONDS = 300;
/** Agents that fall silent change nothing in the feed, so what they reported is read again now and then. */
const REPORTS_MILLISECONDS = 20_000;

/** Call a function now and then while the page is seen, to read what is in no feed. */
export async function nowAndThen(act, signal) {
  while (!signal.aborted) {
    await pause(REPORTS_MILLISECONDS, signal);
    await shown(signal);
    try {
      if (!signal.aborted) await act();
    } catch {
      // That the server is away is said by what follows the changes.
    }
  }
}

async function changes(parameters, signal) {
  const answer = await read("changes", parameters, signal);
  if (answer === null) throw new ApiError(404, "There is no feed of changes where the pages ask the API.");
  return answer;
}

/**
 * Call `onChanges` with the changes as they happen, after `onStart` has read what they change.
 *
 * `onStart` is called again when changes were missed: what the page shows is old then. `parameters` choose
 * the changes; they are read for every request, so that either function may change them.
 */
export async function follow({ onStart, onChanges, parameters = [], gather = GATHER_MILLISECONDS, signal }) {
  /** Up to which change the page is; null when that is not known. */
  let at = null;
  /** Whether the last request failed: the next one does not wait, so that it tells at once when the server is back. */
  let isAway = false;
  while (!signal.aborted) {
    try {
      if (at === null) {
        const { last } = await changes([], signal);
        await onStart();
        report("");
        at = last;
      }
      await shown(signal);
      const answer = await changes([["after", at], ["wait", isAway ? 0 : WAIT_SECONDS], ...parameters], signal);
      if (answer.changes.length) await onChanges(answer.changes);
      report("");
      at = answer.last;
      isAway = false;
      if (answer.changes.length) await pause(gather, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.code === "placement.changes_pruned") {
        at = null;
      } else if (error instanceof NoAnswer || error.status >= 500) {
        report(`${error.message} What is shown may be old; trying again.`);
        isAway = true;
        await pause(AGAIN_MILLISECONDS, signal);
      } else {
        report("");
        throw error;
      }
    }
  }
}

/** When the server last answered, in milliseconds; null before that, and when it does not any more. */
let answeredAt = null;

/** Report what keeps the page from being current, or nothing. */
function report(text) {
  document.getElementById("connection").textContent = text;
  if (!text) answeredAt = Date.now();
  showAge();
}

/** Show how long ago the page was equal to the server. */
function showAge() {
  const seconds = answeredAt === null ? null : Math.floor((Date.now() - answeredAt) / 1000);
  document.getElementById("updated").textContent = seconds === null ? "" : `Updated ${seconds} s ago`;
}

setInterval(showAge, 1000);

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}

/** Wait while nobody sees the page. */
async function shown(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      const end = () => {
        document.removeEventListener("visibilitychange", end);
        signal.removeEventListener("abort", end);
        resolve();
      };
      document.addEventListener("visibilitychange", end);
      signal.addEventListener("abort", end);
    });
  }
}
