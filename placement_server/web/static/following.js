// The feed of changes, followed for as long as a page is shown.

import { ApiError, read } from "./api.js";

const WAIT_SECONDS = 30;
const AGAIN_MILLISECONDS = 2000;
/** For so long changes gather before they are read together. */
const GATHER_MILLISECONDS = 300;

/** Return the newest changes, which are at most so many. */
export async function newest(most, signal) {
  const { last, oldest } = await read("changes", [], signal);
  return read("changes", [["after", Math.max(oldest - 1, last - most)], ["limit", most]], signal);
}

/**
 * Call `onChanges` with the changes as they happen, after `onStart` has read what they change.
 *
 * `onStart` is called again when changes were missed: what the page shows is old then.
 */
export async function follow({ onStart, onChanges, parameters = [], gather = GATHER_MILLISECONDS, signal }) {
  while (!signal.aborted) {
    try {
      let { last } = await read("changes", [], signal);
      await onStart();
      report("");
      while (!signal.aborted) {
        await shown(signal);
        const answer = await read("changes", [["after", last], ["wait", WAIT_SECONDS], ...parameters], signal);
        report("");
        last = answer.last;
        if (answer.changes.length) {
          await onChanges(answer.changes);
          await pause(gather, signal);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.code === "placement.changes_pruned") continue;
      if (error instanceof ApiError && error.status < 500) throw error;
      report("No answer from the server. What is shown may be old; trying again.");
      await pause(AGAIN_MILLISECONDS, signal);
    }
  }
}

function report(text) {
  document.getElementById("connection").textContent = text;
}

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
      document.addEventListener("visibilitychange", resolve, { once: true });
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
}
