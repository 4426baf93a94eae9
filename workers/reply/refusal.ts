import { baseLanguage } from '../../src/language/base.ts';
import type { EngineReply } from './engines/engine.ts';

const TEXTS: Record<string, string> = {
  ar: 'لا أستطيع المساعدة في ذلك. بماذا يمكنني خدمتك غير ذلك؟',
  cs: 'S tím nemohu pomoci. Co pro vás mohu udělat?',
  da: 'Det kan jeg ikke hjælpe med. Hvad kan jeg ellers gøre for dig?',
  de: 'Dabei kann ich nicht helfen. Was kann ich sonst für Sie tun?',
  el: 'Δεν μπορώ να βοηθήσω σε αυτό. Τι άλλο μπορώ να κάνω για εσάς;',
  en: 'I cannot help with that. What else can I do for you?',
  es: 'No puedo ayudar con eso. ¿En qué más puedo ayudarle?',
  fi: 'En voi auttaa siinä. Miten muuten voin auttaa?',
  fr: 'Je ne peux pas vous aider pour cela. Que puis-je faire d’autre pour vous ?',
  hi: 'मैं इसमें मदद नहीं कर सकता। मैं आपके लिए और क्या कर सकता हूँ?',
  id: 'Saya tidak dapat membantu dengan itu. Apa lagi yang bisa saya bantu?',
  it: 'Non posso aiutarla con questo. Cos’altro posso fare per lei?',
  ja: 'それについてはお手伝いできません。ほかにご用件はありますか？',
  ko: '그 요청은 도와드릴 수 없습니다. 다른 도움이 필요하신가요?',
  nl: 'Daar kan ik niet mee helpen. Wat kan ik verder voor u doen?',
  no: 'Det kan jeg ikke hjelpe med. Hva annet kan jeg gjøre for deg?',
  pl: 'W tym nie mogę pomóc. W czym jeszcze mogę pomóc?',
  pt: 'Não posso ajudar com isso. Em que mais posso ajudar?',
  ro: 'Nu vă pot ajuta cu asta. Cu ce altceva vă pot ajuta?',
  ru: 'С этим я не могу помочь. Чем ещё могу быть полезен?',
  sv: 'Det kan jag inte hjälpa till med. Vad kan jag göra i stället?',
  tr: 'Bu konuda yardımcı olamam. Başka nasıl yardımcı olabilirim?',
  uk: 'З цим я не можу допомогти. Чим ще можу бути корисним?',
  zh: '这个我帮不上忙。还有什么可以帮您的吗？',
};

/** The reply to a message that the guard refuses. No engine is asked. */
export const refusalReply = (language: string): EngineReply => {
  const base = baseLanguage(language);
  const known = TEXTS[base];
  return {
    text: known ?? (TEXTS.en as string),
    suggestedActions: [],
    confidence: 1,
    low: false,
    language: known ? language : 'en',
    why: { engine: 'none', kind: 'refused', language: known ? language : 'en' },
  };
};
