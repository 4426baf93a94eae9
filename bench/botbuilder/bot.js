import { createServer } from 'node:http';
import {
  ActivityHandler,
  CloudAdapter,
  ConfigurationBotFrameworkAuthentication,
  ConversationState,
  MemoryStorage,
} from 'botbuilder';
import express from 'express';

// A bot like those of the Bot Framework samples, for comparison with Parley. Requests use `expectReplies`, so the reply
// is in the response. The bot echoes messages and keeps them in memory, by conversation. Without an app id, no caller
// is authenticated. The bot is plain JavaScript in a separate package folder, because the project itself does not need
// its packages.

const MESSAGES_KEPT = 20;

const state = new ConversationState(new MemoryStorage());
const history = state.createProperty('history');
const adapter = new CloudAdapter(new ConfigurationBotFrameworkAuthentication({}));
adapter.onTurnError = async (_context, cause) => console.error(cause);

const bot = new ActivityHandler();
bot.onMessage(async (context, next) => {
  const messages = await history.get(context, []);
  const reply = `echo: ${context.activity.text}`;
  messages.push(context.activity.text, reply);
  await history.set(context, messages.slice(-MESSAGES_KEPT));
  await context.sendActivity(reply);
  await next();
});

const app = express();
app.disable('x-powered-by');
app.get('/readyz', (_req, res) => void res.json({ ready: true }));
app.post('/api/messages', express.json(), (req, res) =>
  adapter.process(req, res, async (context) => {
    await bot.run(context);
    await state.saveChanges(context);
  }),
);
createServer(app).listen(Number(process.env.PORT), '127.0.0.1');
process.on('SIGTERM', () => process.exit(0));
