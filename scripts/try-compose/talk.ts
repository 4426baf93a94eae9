const QUESTION = 'When are you open?';
const ANSWER = 'Every day from 8 to 18.';

type Step = <Value>(name: string, work: () => Value | Promise<Value>) => Promise<Value>;
type Call = { url: string; headers?: Record<string, string>; body: unknown };

const post = async ({ url, headers, body }: Call) => {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${url} answered with ${response.status}: ${text}`);
  return { json: JSON.parse(text) as Record<string, unknown>, cookie: response.headers.get('set-cookie') };
};

/** Signs in as the owner, creates an assistant with one entry and asks it a question as a visitor. */
export const talk = async (given: { url: string; email: string; password: string; step: Step }): Promise<void> => {
  const { url, email, password, step } = given;
  const side = `${url}/operator/v1`;

  // The test uses plain HTTP, as a proxy that terminates TLS would. The cookie is sent only over TLS, so it is copied
  // by hand.
  const { cookie } = await step('the owner signs in', () =>
    post({ url: `${side}/session`, body: { email, password } }),
  );
  const headers = { Cookie: cookie?.split(';')[0] ?? '' };

  const apiKey = await step('an assistant with a key is made', async () => {
    const assistant = await post({ url: `${side}/assistants`, headers, body: { name: 'Try' } });
    const own = `${side}/assistants/${String(assistant.json['assistantId'])}`;
    await post({ url: `${own}/knowledge`, headers, body: { question: QUESTION, answer: ANSWER } });
    return (await post({ url: `${own}/keys`, headers, body: { name: 'try' } })).json['apiKey'];
  });

  await step('a turn is answered', async () => {
    const body = { session_id: 'try', message: QUESTION };
    const turn = await post({
      url: `${url}/api/v1/chat`,
      headers: { Authorization: `Bearer ${String(apiKey)}` },
      body,
    });
    if (turn.json['reply'] !== ANSWER) throw new Error(`the turn was answered with ${JSON.stringify(turn.json)}`);
  });
};
