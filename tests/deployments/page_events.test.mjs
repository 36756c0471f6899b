// How the page for browsers reads an answer, wherever its bytes are cut.
import assert from "node:assert/strict";
import test from "node:test";

import { readEvents } from "../../deployments/page/events.js";

const answer = ': alive\n\ndata: {"n":1}\n\ndata: {"text":"é🙂"}\n\ndata: [DONE]\n\n';
const wanted = [{ n: 1 }, { text: "é🙂" }];

const cut = (bytes, places) =>
  new ReadableStream({
    start(controller) {
      let from = 0;
      for (const place of [...places, bytes.length]) {
        controller.enqueue(bytes.slice(from, place));
        from = place;
      }
      controller.close();
    },
  });

async function read(stream) {
  const events = [];
  for await (const event of readEvents(stream)) events.push(event);
  return events;
}

test("an answer is the same wherever it is cut", async () => {
  const bytes = new TextEncoder().encode(answer);
  for (let place = 0; place <= bytes.length; place++)
    assert.deepEqual(await read(cut(bytes, [place])), wanted);
  assert.deepEqual(await read(cut(bytes, bytes.keys())), wanted);
});

test("an answer that breaks off is an error", async () => {
  const bytes = new TextEncoder().encode(answer.replace("data: [DONE]\n\n", ""));
  await assert.rejects(read(cut(bytes, [])), /broke off/);
});
