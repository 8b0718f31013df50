// A colour for each consumer of a host, the same wherever something of it is drawn.

/** The golden angle: neighbours are far apart, however many there are. */
const STEP = 137.508;

export class ConsumerColours {
  constructor(consumers) {
    this.places = new Map([...consumers].sort().map((consumer, place) => [consumer, place]));
  }

  paint(made, consumer) {
    made.style.setProperty("--hue", String((210 + this.places.get(consumer) * STEP) % 360));
    made.dataset.consumer = consumer;
    made.classList.add("held");
  }
}
