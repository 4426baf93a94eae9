import { fold, foldBeginning, UNSPACED, words } from '@parley/understanding/text';
import { findContactDetails } from '@parley/understanding';

type Rule = { because: string; points: number; applies: (message: Message) => boolean };
type Message = {
  text: string;
  spaced: string;
  tokens: string[];
  /** True if part of the message is in a script without spaces, where words are found as substrings. */
  hasUnspaced: boolean;
  contact: ReturnType<typeof findContactDetails>;
  turnNumber: number;
};

const BUCKET_CHARS = 2;

/**
 * A rule that applies if the message has a word of the list. The list has folded words of many languages; `*` is any
 * ending, `_` a space. Words of the message are looked up in tables, so that the time does not depend on the length of
 * the list.
 */
const mentionsAny = (list: string): Rule['applies'] => {
  const entries = list.split(' ').map((entry) => fold(entry.replaceAll('_', ' ')));
  const isPhrase = (entry: string): boolean => entry.includes(' ');
  const exact = new Set(entries.filter((entry) => !entry.endsWith('*') && !isPhrase(entry)));
  const beginnings = Map.groupBy(
    entries.filter((entry) => entry.endsWith('*') && !isPhrase(entry)).map((entry) => entry.slice(0, -1)),
    (beginning) => beginning.slice(0, BUCKET_CHARS),
  );
  const phrases = Map.groupBy(
    entries.filter(isPhrase).map((entry) => (entry.endsWith('*') ? ` ${entry.slice(0, -1)}` : ` ${entry} `)),
    (phrase) => phrase.split(' ')[1] as string,
  );
  const unspaced = entries.filter((entry) => UNSPACED.test(entry));
  return ({ text, spaced, tokens, hasUnspaced }) =>
    tokens.some(
      (token) =>
        exact.has(token) ||
        beginnings.get(token.slice(0, BUCKET_CHARS))?.some((beginning) => token.startsWith(beginning)) ||
        phrases.get(token)?.some((phrase) => spaced.includes(phrase)),
    ) ||
    (hasUnspaced && unspaced.some((entry) => text.includes(entry)));
};

const BUYING =
  'buy buying purchase* want_to_order like_to_order sign_up subscribe get_started place_an_order kaufen kaufe bestellen bestelle abonnieren abschliessen acheter achete commander souscrire comprar compro contratar adquirir comprare compro acquistare ordinare kopen koop bestel bestellen afsluiten kop kopa bestalla kobe bestille kjope ostaa tilata kupic kupie zamowic koupit objednat kupit kupim cumpara cumpar comanda vasarolni venni rendelni megrendel* satin_almak satin_alabilir siparis_vermek αγορασω αγορα παραγγειλω купить куплю заказать оформить купити замовити купя поръчам kupiti naruciti купити наручити شراء اشتري خريد بخرم خریدنا לקנות לרכוש להזמין खरीदना kharidna beli membeli pesan mua dat_mua bumili bibili kununua koop aankoop 購入 買いたい 申し込み 购买 想买 購買 下单 구매 주문하고 ซื้อ สั่งซื้อ';
const PRICING =
  'price* pricing cost costs how_much quote quotation* rate_card preis* kostet kosten angebot kostenvoranschlag prix tarif* devis combien precio* cuesta cuanto presupuesto cotizacion preco* custa orcamento prezz* costa preventivo prijs* kost offerte pris priser kostar koster tilbud offert hinta* maksaa tarjous cena* ceny kosztuje wycen* oferta stoji nabidk* ponuk* pretul preturi mennyibe ajanlat* fiyat* ne_kadar teklif* τιμη κοστιζει κοστος προσφορα цена* стоит стоимость прайс ціна* коштує вартість струва цени кошта سعر السعر تكلفه كم_سعر قيمت هزينه קیمت قيمت מחיר עולה הצעת_מחיר कीमत दाम kimat harga* biaya bao_nhieu presyo magkano bei_gani 料金 価格 値段 見積 いくら 价格 价钱 多少钱 报价 價格 報價 가격 얼마 견적 ราคา เท่าไหร่';
const DEMO =
  'demo demos trial* test_drive free_trial show_me_how walkthrough vorfuhr* probe* testversion ausprobieren testen essai* essayer demonstration prueba* probar demostracion teste experimentar demonstracao prova provare dimostrazione proefperiode uitproberen demonstratie prova_pa testa provperiode kokeilla kokeilu* wyprobowa* probny prezentacj* vyzkouset zkousk* ukazk* vyskusat demonstrati* kiprobal* bemutato deneme* denemek δοκιμη δοκιμασω демо пробн* попробовать демонстраци* спробувати пробний проба تجربه عرض_توضيحي دمو آزمايشي نسيون ניסיון הדגמה डेमो percobaan coba mencoba dung_thu デモ 試用 お試し 体験 演示 试用 試用 데모 체험 시연 ทดลอง สาธิต';
const COMPANY =
  'our_company our_team our_business my_company employees licences licenses seats bulk wholesale reseller enterprise fur_unser* unsere_firma unser_unternehmen mitarbeiter lizenzen grosshandel notre_entreprise notre_equipe salaries licences nuestra_empresa nuestro_equipo empleados licencias nossa_empresa funcionarios nostra_azienda dipendenti licenze ons_bedrijf medewerkers licenties vart_foretag anstallda vores_virksomhed medarbejdere bedriften_var yrityksemme nasza_firma naszej_firmy pracownikow nase_firma nasi_firmu firma_noastra cegunk* sirketimiz* εταιρεια_μας наша_компания нашей_компании сотрудников наша_компанія нашої_компанії شركتنا شركت_ما החברה_שלנו perusahaan_kami cong_ty_chung_toi 弊社 当社 我们公司 我們公司 우리_회사 บริษัทของเรา';
const SOON =
  'asap urgent* right_away as_soon_as_possible this_week sofort dringend so_schnell_wie_moglich diese_woche urgent des_que_possible cette_semaine urgente cuanto_antes esta_semana o_mais_rapido quanto_prima questa_settimana zo_snel_mogelijk dringend deze_week sa_snart_som_mojligt hurtigst_muligt sa_raskt_som_mulig mahdollisimman_pian pilne jak_najszybciej co_nejdrive nalehave cat_mai_repede surgos* acil επειγον срочно терміново спешно عاجل فوري فوری דחוף segera gap khan_cap 至急 急ぎ 尽快 急需 급해요 긴급 ด่วน';

/** The rules, each counted once per conversation (docs/assistants.md). */
export const LEAD_RULES: readonly Rule[] = [
  { because: 'left an e-mail address', points: 25, applies: ({ contact }) => contact?.email === true },
  { because: 'left a phone number', points: 20, applies: ({ contact }) => contact?.phone === true },
  { because: 'wants to buy', points: 20, applies: mentionsAny(BUYING) },
  { because: 'asked for a demo or a trial', points: 15, applies: mentionsAny(DEMO) },
  { because: 'asked for a price', points: 15, applies: mentionsAny(PRICING) },
  { because: 'speaks for a company', points: 10, applies: mentionsAny(COMPANY) },
  { because: 'is in a hurry', points: 5, applies: mentionsAny(SOON) },
  { because: 'stayed for 3 turns', points: 5, applies: ({ turnNumber }) => turnNumber >= 3 },
  { because: 'stayed for 6 turns', points: 5, applies: ({ turnNumber }) => turnNumber >= 6 },
  { because: 'stayed for 10 turns', points: 5, applies: ({ turnNumber }) => turnNumber >= 10 },
];

const MAX_SCORE = 100;
/** Only this many characters of a message are read, so that long messages do not take longer. */
const MAX_LENGTH = 1000;

type LeadEvidence = {
  /** The conversation's score so far. An operator may have set it. */
  previous: number;
  /** Names of the rules that have counted already. */
  explanation: readonly string[];
  message: string;
  turnNumber: number;
};

/** Adds the points of rules that apply for the first time. The score never falls. */
export const scoreLead = ({
  previous,
  explanation,
  message,
  turnNumber,
}: LeadEvidence): { score: number; because: string[] } => {
  const text = foldBeginning(message, MAX_LENGTH);
  const tokens = words(text);
  const read: Message = {
    text,
    spaced: ` ${tokens.join(' ')} `,
    tokens,
    hasUnspaced: UNSPACED.test(text),
    contact: findContactDetails(message),
    turnNumber,
  };
  const newRules = LEAD_RULES.filter(({ because, applies }) => !explanation.includes(because) && applies(read));
  const earned = newRules.reduce((sum, { points }) => sum + points, 0);
  const before = Math.max(0, Math.min(MAX_SCORE, Math.round(previous)));
  return {
    score: Math.min(MAX_SCORE, before + earned),
    because: [...explanation, ...newRules.map(({ because }) => because)],
  };
};
