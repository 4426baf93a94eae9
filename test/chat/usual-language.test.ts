import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { anAssistant, anEntry, aTurn, type TestAssistant } from '../support/builders.ts';
import { eventually } from '../support/eventually.ts';
import { QUICK, readingOf } from '../support/source-reading.ts';
import { useStack } from '../support/stack.ts';
import { openWebsite } from '../kit/website.ts';

const stack = useStack({ deliveryWorkers: 0, sourcesWorkers: 1, timing: QUICK });

const written = (question: string, answer: string) => anEntry({ question, answer, language: null });
const GERMAN = [
  written('Wann haben Sie geöffnet?', 'Wir haben von Montag bis Samstag von 9 bis 18 Uhr geöffnet.'),
  written('Was kostet der Versand?', 'Der Versand kostet 4,90 € und ist ab 50 € frei.'),
];
const ENGLISH = [
  written('When are you open?', 'We are open from Monday to Saturday, from 9 to 6.'),
  written('How much is shipping?', 'Shipping is 4.90 € and free from 50 €.'),
];

/** The language that a first message of a new session gets. */
const languageOf = async ({ chat, history }: TestAssistant, message: string): Promise<string> => {
  const { body } = await chat(aTurn({ session_id: randomUUID(), message }));
  return (await history(body.conversationId)).body.language;
};

test('a short message that says nothing is in the language of the entries', async () => {
  const assistant = await anAssistant(stack, { knowledge: GERMAN });

  expect(await languageOf(assistant, 'freitag offen?')).toBe('de');
  expect(await languageOf(assistant, 'What are your opening hours on Fridays?')).toBe('en');
  const { body } = await assistant.chat(aTurn({ session_id: randomUUID(), message: 'Versand kosten?' }));
  expect(body.reply).toContain('4,90 €');
});

test('entries in several languages leave it in English, as no entries do', async () => {
  const both = await anAssistant(stack, { knowledge: [...GERMAN, ...ENGLISH] });
  const none = await anAssistant(stack, { knowledge: [] });
  const many = Array.from({ length: 50 }, (_, nth) => ({ ...GERMAN[nth % 2]!, variants: [`Frage ${nth}`] }));
  const later = Array.from({ length: 25 }, (_, nth) => ({ ...ENGLISH[nth % 2]!, variants: [`Question ${nth}`] }));
  const afterwards = await anAssistant(stack, { knowledge: [...later, ...many] });

  expect(await languageOf(both, 'freitag offen?')).toBe('en');
  expect(await languageOf(none, 'freitag offen?')).toBe('en');
  expect(await languageOf(afterwards, 'freitag offen?')).toBe('en');
});

test('the language follows the entries, and the languages of the assistant go first', async () => {
  const { assistants } = stack.service;
  const assistant = await anAssistant(stack, { knowledge: ENGLISH });
  expect(await languageOf(assistant, 'freitag offen?')).toBe('en');

  await assistants.addKnowledge(assistant.assistantId, GERMAN, { replace: true });
  await eventually(async () => expect(await languageOf(assistant, 'freitag offen?')).toBe('de'));

  await assistants.updateAssistant(assistant.assistantId, { languages: ['nl'] });
  await eventually(async () => expect(await languageOf(assistant, 'freitag offen?')).toBe('nl'));
});

test('a published draft changes the language', async () => {
  const { assistants } = stack.service;
  const assistant = await anAssistant(stack, { knowledge: ENGLISH });
  const { assistantId } = assistant;
  await assistants.updateAssistant(assistantId, { drafts: true });
  await assistants.addKnowledge(assistantId, GERMAN, { replace: true });
  expect(await languageOf(assistant, 'freitag offen?')).toBe('en');

  await assistants.drafts.publish(assistantId, { name: null, note: null });

  await eventually(async () => expect(await languageOf(assistant, 'freitag offen?')).toBe('de'));
});

test('the language of pages counts, and pages in another language than the entries leave it in English', async () => {
  const body =
    "Nous sommes ouverts du lundi au samedi, de neuf heures à dix-huit heures. Le dimanche, l'atelier reste fermé.";
  const site = await openWebsite({
    '/': `<html lang="fr"><title>Atelier</title><h1>Horaires</h1><p>${body}</p></html>`,
  });
  onTestFinished(() => site.close());
  const addSite = async (assistant: TestAssistant): Promise<void> => {
    const { sourceId } = await stack.service.sources.add(assistant.assistantId, { kind: 'site', url: `${site.url}/` });
    await readingOf(stack).ended(sourceId);
  };
  const alone = await anAssistant(stack, { knowledge: [] });
  const beside = await anAssistant(stack, { knowledge: GERMAN });
  await Promise.all([addSite(alone), addSite(beside)]);

  await eventually(async () => expect(await languageOf(alone, 'ouvert samedi')).toBe('fr'));
  await eventually(async () => expect(await languageOf(beside, 'ouvert samedi')).toBe('en'));
});
