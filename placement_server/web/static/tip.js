// The small box beside the pointer, which says what is under it.

const tip = document.getElementById("tip");

export function showTip(event, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 14 + width < innerWidth;
  const below = event.clientY + 14 + height < innerHeight;
  tip.style.left = `${Math.max(0, right ? event.clientX + 14 : event.clientX - 10 - width)}px`;
  tip.style.top = `${Math.max(0, below ? event.clientY + 14 : event.clientY - 10 - height)}px`;
}

export function hideTip() {
  tip.hidden = true;
}
