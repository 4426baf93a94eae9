import { joinMessages } from '@parley/understanding';
import { expect, test } from 'vitest';

test.each<[string, string[], string]>([
  ['a question in parts', ['hi', 'when are you open', 'on sundays?'], 'when are you open\non sundays?'],
  ['a greeting in parts', ['hi', 'there'], 'hi\nthere'],
  ['only courtesies', ['hi', 'thank you'], 'hi\nthank you'],
  ['a yes, which may answer a question', ['yes', 'how much is it?'], 'yes\nhow much is it?'],
  ['a request for a person', ['hi', 'I want to talk to a human', 'when are you open'], 'I want to talk to a human'],
  ['a request in parts', ['can i talk', 'to a person'], 'can i talk\nto a person'],
])('messages that are answered together are one text: %s', (_what, messages, asked) => {
  expect(joinMessages(messages, 'en')).toBe(asked);
});
