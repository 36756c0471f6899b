// Server-sent events of a chat completion, as the objects they carry.

// Yields the parsed `data` of each event of a byte stream, up to `[DONE]`; comments are passed over.
export async function* readEvents(bytes) {
  let rest = "";
  for await (const text of pieces(bytes)) {
    const events = (rest + text).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
  throw new Error("The answer broke off.");
}

// Not every browser lets streams be iterated over.
async function* pieces(bytes) {
  const reader = bytes.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
