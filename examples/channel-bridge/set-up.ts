/** Calls the operator API with an operator token and returns the body of the answer. */
export type OperatorApi = <Body>(method: string, path: string, body?: object) => Promise<Body>;

export const openOperatorApi =
  (url: string, token: string): OperatorApi =>
  async <Body>(method: string, path: string, body?: object) => {
    const response = await fetch(`${url}/operator/v1${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} gave ${response.status}: ${text}`);
    return JSON.parse(text === '' ? 'null' : text) as Body;
  };

const ENTRIES = [
  { question: 'When are you open?', variants: ['And on Sundays?'], answer: 'From 9 to 5, every day.', language: 'en' },
  { question: 'Is there parking?', answer: 'There is a car park behind the house.', language: 'en' },
];

/** What a bridge needs: a connected channel, an API key, and an endpoint that names `message.sent`. */
export const setUpAssistant = async (operatorApi: OperatorApi, endpointUrl: string) => {
  const verifyToken = 'the-token-of-the-bridge';
  const { assistantId } = await operatorApi<{ assistantId: string }>('POST', '/assistants', { name: 'Bridge example' });
  const at = `/assistants/${assistantId}`;
  for (const entry of ENTRIES) await operatorApi('POST', `${at}/knowledge`, entry);
  await operatorApi('PATCH', `${at}/channel`, { connected: true, token: verifyToken, limitPerMinute: 1_000 });
  const { apiKey } = await operatorApi<{ apiKey: string }>('POST', `${at}/keys`, {
    name: 'Bridge',
    limitPerMinute: 10_000,
  });
  const { secret } = await operatorApi<{ secret: string }>('POST', `${at}/endpoints`, {
    url: endpointUrl,
    events: ['message.sent'],
  });
  return { assistantId, verifyToken, apiKey, webhookSecret: secret };
};
