import { expect, test } from 'vitest';
import { hintOf } from '../../src/platform/process/hints.ts';

test.each([
  "OOM command not allowed when used memory > 'maxmemory'. script: 5ee2d1, on @user_script:4.",
  "ERR Error running script (call to f_5ee2d1): @user_script:4: @user_script: 4: -OOM command not allowed when used memory > 'maxmemory'.",
  "ERR Error running script (call to f_5ee2d1): @user_script:4: OOM command not allowed when used memory > 'maxmemory'.",
])('the code of Redis is found: %s', (message) => {
  expect(hintOf(new Error(message))?.problem).toBe('Redis is out of memory');
});

test.each([
  'ROOM 12 is cold',
  'Unexpected token \'R\', "ROOM 12 is cold" is not valid JSON',
  'the OOM killer',
  'x -OOM y',
])('a text that contains the letters of a code gets no hint: %s', (message) => {
  expect(hintOf(new Error(message))).toBeNull();
});
