// Official Node clients against a server at STEPSERVE_URL: a chat model and an embedding model.
import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const url = process.env.STEPSERVE_URL;
const model = "smollm2-135m-instruct";
const embedder = "all-minilm-l6-v2";
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", timeout: 300_000 });
const claude = new Anthropic({ baseURL: url, apiKey: "none", timeout: 300_000 });
const messages = [{ role: "user", content: "What is the capital of France?" }];

const City = z.object({
  name: z.string().max(20),
  population: z.number().int().min(1).max(40_000_000),
  climate: z.enum(["mild", "hot", "cold"]),
});
const Place = z.object({ city: z.enum(["Paris", "Rome"]) });

test("models", async () => {
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  assert.deepEqual(ids.sort(), [embedder, model]);
  assert.equal((await client.models.retrieve(model)).object, "model");
});

test("a chat, whole and streamed, says the same", async () => {
  const request = { model, messages, temperature: 0 };
  const whole = await client.chat.completions.create(request);
  assert.match(whole.choices[0].message.content, /Paris/);
  const stream = await client.chat.completions.create({
    ...request, stream: true, stream_options: { include_usage: true },
  });
  let text = "", usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("the stream helper gathers the chunks", async () => {
  const runner = client.chat.completions.stream({ model, messages, temperature: 0 });
  let text = "";
  runner.on("content", (delta) => { text += delta; });
  assert.equal(await runner.finalContent(), text);
  assert.equal((await runner.finalChatCompletion()).choices[0].finish_reason, "stop");
});

test("a completion with logprobs", async () => {
  const answer = await client.completions.create({
    model, prompt: "Paris is", max_tokens: 4, logprobs: 2, temperature: 0,
  });
  const { tokens, token_logprobs: scores } = answer.choices[0].logprobs;
  assert.equal(tokens.join(""), answer.choices[0].text);
  assert.equal(scores.length, 4);
});

test("parse: a structured answer", async () => {
  const answer = await client.chat.completions.parse({
    model, messages: [{ role: "user", content: "Describe Paris." }], temperature: 0,
    max_tokens: 200, response_format: zodResponseFormat(City, "city"),
  });
  City.parse(answer.choices[0].message.parsed);
});

test("parse: a streamed one", async () => {
  const runner = client.chat.completions.stream({
    model, messages: [{ role: "user", content: "Describe Rome." }], temperature: 0,
    max_tokens: 200, response_format: zodResponseFormat(City, "city"),
  });
  City.parse((await runner.finalChatCompletion()).choices[0].message.parsed);
});

const weather = (seen) => zodFunction({
  name: "weather", description: "The weather of a city", parameters: Place,
  function: async ({ city }) => { seen.push(city); return `sunny in ${city}`; },
});

for (const stream of [false, true]) {
  test(`runTools ${stream ? "streamed" : "whole"}: a named function is called`, async () => {
    const seen = [];
    const runner = client.chat.completions.runTools({
      model, stream, messages: [{ role: "user", content: "How is the weather in Paris?" }],
      temperature: 0, tools: [weather(seen)],
      tool_choice: { type: "function", function: { name: "weather" } },
    });
    const result = await runner.finalFunctionToolCallResult();
    assert.equal(seen.length, 1);
    assert.equal(result, `sunny in ${seen[0]}`);
  });
}

test("runTools: what was called is told, and the answer goes on", async () => {
  const seen = [];
  const history = [
    { role: "user", content: "How is the weather in Rome?" },
    {
      role: "assistant", content: null,
      tool_calls: [{
        id: "call_1", type: "function",
        function: { name: "weather", arguments: '{"city": "Rome"}' },
      }],
    },
    { role: "tool", tool_call_id: "call_1", content: "sunny in Rome" },
  ];
  const runner = client.chat.completions.runTools({
    model, messages: history, temperature: 0, max_tokens: 40, tools: [weather(seen)],
  }, { maxChatCompletions: 2 });
  await runner.done();
  assert.ok(runner.messages.length > history.length);
});

test("responses: whole, streamed, continued, deleted", async () => {
  const first = await client.responses.create({ model, input: "My name is Ada.", temperature: 0 });
  assert.ok(first.output_text.length > 0);
  const second = await client.responses.create({
    model, input: "What is my name?", previous_response_id: first.id, temperature: 0, stream: true,
  });
  const types = [];
  let text = "", last = null;
  for await (const event of second) {
    types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.completed") last = event.response;
  }
  assert.equal(types[0], "response.created");
  assert.equal(last.output[0].content[0].text, text);
  const kept = await client.responses.retrieve(last.id);
  assert.equal(kept.output_text, text);
  await client.responses.delete(last.id);
  await assert.rejects(client.responses.retrieve(last.id), OpenAI.NotFoundError);
});

test("responses: parse, and the stream helper", async () => {
  const format = zodTextFormat(City, "city");
  const answer = await client.responses.parse({
    model, input: "Describe Paris.", temperature: 0, text: { format }, max_output_tokens: 200,
  });
  City.parse(answer.output_parsed);
  const stream = client.responses.stream({
    model, input: "Describe Rome.", temperature: 0, text: { format }, max_output_tokens: 200,
  });
  City.parse((await stream.finalResponse()).output_parsed);
});

test("responses: a function is called", async () => {
  const answer = await client.responses.create({
    model, input: "How is the weather in Paris?", temperature: 0, tool_choice: "required",
    parallel_tool_calls: false,
    tools: [{
      type: "function", name: "weather", strict: true,
      parameters: {
        type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"],
        additionalProperties: false,
      },
    }],
  });
  const call = answer.output.find((item) => item.type === "function_call");
  Place.parse(JSON.parse(call.arguments));
});

test("embeddings: base64 on the wire and floats are the same", async () => {
  const input = ["A cat sits on the mat.", "A feline rests on a rug."];
  const packed = await client.embeddings.create({ model: embedder, input });
  const plain = await client.embeddings.create({ model: embedder, input, encoding_format: "float" });
  assert.equal(packed.data.length, 2);
  for (const [i, { embedding }] of plain.data.entries()) {
    assert.equal(embedding.length, 384);
    embedding.forEach((x, k) => assert.ok(Math.abs(x - packed.data[i].embedding[k]) < 1e-6));
  }
});

test("errors are the client's own", async () => {
  await assert.rejects(
    client.chat.completions.create({ model: "gpt-5", messages }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
  );
  await assert.rejects(
    client.chat.completions.create({ model, messages, temperature: 9 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature",
  );
});

test("an abandoned stream ends", async () => {
  const stream = await client.completions.create({
    model, prompt: "Once", max_tokens: 2000, stream: true, ignore_eos: true,
  });
  for await (const chunk of stream) {
    assert.equal(chunk.object, "text_completion");
    break;
  }
});

test("Anthropic's client: a message, a stream, tokens, a call", async () => {
  const ask = { model, max_tokens: 40, temperature: 0, messages };
  const whole = await claude.messages.create(ask);
  assert.match(whole.content[0].text, /Paris/);
  const stream = claude.messages.stream(ask);
  assert.equal(await stream.finalText(), whole.content[0].text);
  const counted = await claude.messages.countTokens({ model, messages });
  assert.equal(counted.input_tokens,
    whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  const called = await claude.messages.create({
    ...ask, max_tokens: 100, tool_choice: { type: "tool", name: "weather" },
    tools: [{
      name: "weather",
      input_schema: {
        type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"],
      },
    }],
  });
  assert.equal(called.stop_reason, "tool_use");
  Place.parse(called.content.find((block) => block.type === "tool_use").input);
});
