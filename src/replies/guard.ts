import { withoutPiledMarks } from '@parley/understanding/text';

/** What a message tries to do: replace the instructions, read them, or imitate another role. */
type GuardFinding = 'override' | 'leak' | 'role_token';

/**
 * The maximum number of characters between the words of one match. Patterns for scripts where one character is a word
 * use a smaller number.
 */
const REACH = 40;

const sequence = (...steps: string[]): ProximityPattern => ({ steps, reach: REACH });
const sequenceWithin = (reach: number, ...steps: string[]): ProximityPattern => ({ steps, reach });

/** Every combination of a word of the first list with a word of the second list. */
const pairs = (first: string, second: string): string =>
  first
    .split(' ')
    .flatMap((one) => second.split(' ').map((other) => `${one}_${other}`))
    .join(' ');

/**
 * One pattern per language: a verb such as *ignore*, followed by a word for the instructions. Latin letters are written
 * without accents, because folding removes the accents of messages.
 */
const OVERRIDES: readonly ProximityPattern[] = [
  sequence(
    'ignore disregard forget override bypass drop',
    'all any every previous prior above earlier your the these system',
    'instruction instructions rules prompt prompts guidelines directives guardrails',
  ),
  sequence('ignorier* vergiss* vergesst* missachte* umgehe*', 'anweisung* instruktion* regel* vorgabe* prompt*'),
  sequence(
    'ignore ignorer ignorez oublie oublier oubliez neglige negliger negligez contourne contourner contournez',
    'instructions consignes regles directives',
  ),
  sequence('ignora* olvida* omite* descarta*', 'instrucciones reglas ordenes indicaciones directrices'),
  sequence('ignora* dimentica* trascura* scorda*', 'istruzioni regole direttive indicazioni'),
  sequence('ignor* esque* desconsider* descart*', 'instrucoes regras ordens diretrizes orientacoes'),
  sequence('negeer* vergeet* omzeil*', 'instructies regels aanwijzingen opdrachten'),
  sequence('zignoruj* ignoruj* zapomnij* pomin*', 'instrukcj* polecen* zasad* wytyczn*'),
  sequence('игнорируй проигнорируй забудь отбрось не_обращай_внимания', 'инструкци правил указани команд'),
  sequence('ігноруй проігноруй забудь відкинь', 'інструкці правил вказівк'),
  sequence('talimat* kural* yonerge* komut*', 'unut* yok_say* gormezden* dikkate_alma*'),
  sequence('abaikan lupakan', 'instruksi* aturan* perintah* petunjuk*'),
  sequenceWithin(12, '忽略 无视 無視 忘记 忘記 不要理会', '指令 指示 规则 規則 提示 设定 設定'),
  sequenceWithin(12, '指示 命令 ルール 規則 プロンプト 設定', '無視 忘れ 破棄'),
  sequenceWithin(12, '지시 명령 규칙 프롬프트 지침', '무시 잊어 잊고'),
  sequenceWithin(30, 'تجاهل انس انسى أهمل', 'التعليمات القواعد الأوامر تعليماتك'),
  sequenceWithin(25, 'निर्देश नियम आदेश', 'अनदेखा भूल नज़रअंदाज़ नजरअंदाज'),
  sequence('you_are_now', 'dan unrestricted jailbroken developer_mode no_longer'),
  sequence('enable activate enter', 'developer_mode jailbreak_mode god_mode dan_mode'),
];

/** One pattern per language: a verb such as *show*, followed by a word for the instructions or another secret. */
const LEAKS: readonly ProximityPattern[] = [
  sequence(
    'reveal show print repeat output display tell_me give_me what_is what_are leak translate summarise summarize',
    `${pairs('system initial hidden secret original', 'prompt instruction instructions message rules')} ${pairs('your', 'prompt instructions system_message')}`,
  ),
  sequence('repeat', 'everything all the_text the_words', 'above'),
  sequence(
    'zeig* nenn* verrat* wiederhol* gib* drucke* ausgeben* wie_lautet* was_sind*',
    'systemprompt* system_prompt* systemnachricht* deine_anweisungen* deine_instruktionen* geheime*_anweisung*',
  ),
  sequence(
    'montre* revele* affiche* repete* donne* quel*',
    `prompt_systeme prompt_initial ${pairs('instructions', 'systeme secretes initiales cachees')} tes_instructions vos_instructions`,
  ),
  sequence(
    'muestra* revela* ensena* repite* dime* dame* cual*',
    `prompt_del_sistema prompt_inicial ${pairs('instrucciones', 'del_sistema secretas ocultas iniciales')} tus_instrucciones`,
  ),
  sequence(
    'mostra* rivela* ripeti* dimmi* quali* qual*',
    `prompt_di_sistema prompt_iniziale ${pairs('istruzioni', 'di_sistema segrete nascoste iniziali')} le_tue_istruzioni tue_istruzioni`,
  ),
  sequence(
    'mostr* revel* repit* diga* quais* qual*',
    `prompt_do_sistema prompt_inicial ${pairs('instrucoes', 'do_sistema secretas ocultas iniciais')} suas_instrucoes tuas_instrucoes`,
  ),
  sequence('toon* laat* geef* herhaal* onthul*', 'systeemprompt systeeminstructies je_instructies jouw_instructies'),
  sequence(
    'покажи раскрой повтори выведи назови',
    `${pairs('системн*', 'промпт инструкци сообщени')} сво*_инструкци скрыт*_инструкци`,
  ),
  sequence(
    'pokaz* ujawnij* powtorz* wypisz* wyswietl* podaj* jakie jaki',
    `prompt_systemowy wiadomosc_systemow* ${pairs('instrukcje', 'systemowe poczatkowe ukryte tajne')} swoje_instrukcje twoje_instrukcje`,
  ),
  sequence(
    'покажи розкрий повтори виведи назви',
    `${pairs('системн*', 'промпт інструкці повідомлення')} свої_інструкці твої_інструкці прихован*_інструкці`,
  ),
  sequence(
    'sistem_istemi* sistem_mesaj* sistem_talimat* gizli_talimat* sistem_prompt*',
    'goster* soyle* yaz* tekrarla* acikla* nedir',
  ),
  sequence(
    'tampilkan tunjukkan ulangi ungkapkan beritahu sebutkan apa',
    `${pairs('prompt instruksi perintah pesan', 'sistem sistemmu awal rahasia tersembunyi')} instruksimu`,
  ),
  sequenceWithin(25, 'सिस्टम_प्रॉम्प्ट सिस्टम_निर्देश गुप्त_निर्देश अपने_निर्देश', 'दिखा बता दोहरा'),
  sequenceWithin(
    12,
    '显示 顯示 告诉我 告訴我 输出 輸出 重复 重複 泄露',
    '系统提示 系統提示 系统指令 你的指令 初始提示 提示词',
  ),
  sequenceWithin(14, 'システムプロンプト システム指示 あなたへの指示 初期プロンプト', '見せ 教え 表示 出力 繰り返'),
  sequenceWithin(
    14,
    '시스템프롬프트 시스템_프롬프트 시스템지시 시스템_지시 너의_지침 초기_프롬프트',
    '보여 알려 출력 반복',
  ),
  sequenceWithin(25, 'أظهر اكشف اعرض كرر أخبرني', 'تعليمات_النظام موجه_النظام تعليماتك'),
];

/**
 * Marks of speakers in prompts, which no visitor types by chance. Every repetition in these patterns has a limit, so
 * that matching stays fast.
 */
const ROLE_TOKENS: readonly RegExp[] = [
  /<\|?\s?(?:im_start|im_end|im_sep|system|assistant|endoftext|eot_id|start_header_id|end_header_id|begin_of_text)\s?\|?>/u,
  /\[\/?(?:inst|system|sys)\]|<<\/?sys>>/u,
  /(?:^| )(?:###|<\/?)? ?(?:system|assistant|developer)(?: ?(?:prompt|message|override))? ?:(?= ?(?:you|ignore|new|from now|override|disregard|the user))/u,
  /<\/?visitor[ -][0-9a-f]{4}/u,
];

const ANY_ENDING = '*';
const LETTER = /[\p{L}\p{N}_]/u;

/** Which step of which pattern an entry of the trie completes, and what must follow the entry in the text. */
type StepEnd = { pattern: number; step: number; ending: 'edge' | 'word' | 'anywhere' };
type Node = { next: Map<number, Node>; anyEnding: Node | null; stepEnds: StepEnd[] };

/**
 * Steps that must occur one after another, with at most `reach` characters between two steps. Each step is a list of
 * words, one of which must occur.
 */
type ProximityPattern = { steps: string[]; reach: number };

const createNode = (): Node => ({ next: new Map(), anyEnding: null, stepEnds: [] });

/** The character codes of a–z, digits and `_`. Scanned text is already folded. */
const LATIN = Uint8Array.from({ length: 128 }, (_, code) => Number(/[a-z0-9_]/.test(String.fromCharCode(code))));
const isLatinAt = (text: string, at: number): boolean => LATIN[text.charCodeAt(at)] === 1;

const addEntry = (root: Node, entry: string, stepEnds: Omit<StepEnd, 'ending'>): void => {
  let node = root;
  const open = entry.endsWith(ANY_ENDING);
  const chars = open ? entry.slice(0, -1) : entry;
  for (let at = 0; at < chars.length; at += 1) {
    if (chars[at] === ANY_ENDING) node = node.anyEnding ??= createNode();
    else {
      const code = chars.charCodeAt(at);
      const next = node.next.get(code) ?? createNode();
      node.next.set(code, next);
      node = next;
    }
  }
  const ending = open ? 'word' : isLatinAt(chars, chars.length - 1) ? 'edge' : 'anywhere';
  node.stepEnds.push({ ...stepEnds, ending });
};

const build = (patterns: readonly ProximityPattern[]): Node => {
  const root = createNode();
  for (const [pattern, { steps }] of patterns.entries()) {
    for (const [step, list] of steps.entries()) {
      for (const entry of list.split(' '))
        addEntry(root, entry.replaceAll('_', ' ').normalize('NFC'), { pattern, step });
    }
  }
  return root;
};

const endOfWord = (text: string, from: number): number => {
  let at = from;
  while (isLatinAt(text, at)) at += 1;
  return at;
};

/** Finds the end of a word. The end is cached, so that a long word is read once. */
const createEndOfLetters = (text: string): ((from: number) => number) => {
  let known = { from: 0, end: -1 };
  return (from) => {
    if (from >= known.from && from <= known.end) return known.end;
    let end = from;
    while (LETTER.test(text.charAt(end))) end += 1;
    known = { from, end };
    return end;
  };
};

/**
 * Scans a folded text once, in linear time. A trie of all entries is followed from each position, and each pattern
 * keeps only the matches that its next step can still reach. A regular expression would try every pair of words. In an
 * entry, `_` is a space and `*` any ending. Latin entries match whole words; entries in other scripts match anywhere.
 * Returns the index of the first matching pattern of the list, or null.
 */
const createScanner = (patterns: readonly ProximityPattern[]): ((text: string) => number | null) => {
  const root = build(patterns);

  return (text) => {
    const reached: number[][][] = [];
    const endOfLetters = createEndOfLetters(text);
    let first: number | null = null;

    const record = ({ pattern, step }: StepEnd, start: number, end: number): void => {
      const near = patterns[pattern];
      if (!near || (first !== null && first <= pattern)) return;
      const ends = (reached[pattern] ??= near.steps.map(() => []));
      if (step > 0) {
        const before = (ends[step - 1] ?? []).filter((one) => one + near.reach >= start);
        ends[step - 1] = before;
        if (!before.some((one) => one <= start)) return;
      }
      if (step === near.steps.length - 1) first = pattern;
      else ends[step] = [...(ends[step] ?? []).filter((one) => one + near.reach >= start), end];
    };

    const follow = (from: Node, start: number, begin: number): void => {
      let at = begin;
      for (let node: Node | undefined = from; node; node = node.next.get(text.charCodeAt(at)), at += 1) {
        for (const stepEnds of node.stepEnds) {
          if (stepEnds.ending === 'edge' && isLatinAt(text, at)) continue;
          record(stepEnds, start, stepEnds.ending === 'word' ? endOfWord(text, at) : at);
        }
        if (node.anyEnding) follow(node.anyEnding, start, endOfLetters(at));
      }
    };

    let inWord = false;
    for (let start = 0; start < text.length && first !== 0; start += 1) {
      const wasInWord = inWord;
      inWord = isLatinAt(text, start);
      if (inWord && wasInWord) continue;
      const node = root.next.get(text.charCodeAt(start));
      if (node) follow(node, start, start + 1);
    }
    return first;
  };
};

/** A longer message is inspected only at both ends: this many characters at each end. */
const INSPECTED_ENDS = 4_000;

const INVISIBLE = /[\p{Default_Ignorable_Code_Point}\p{Cf}]/gu;

/** Letters of other scripts that look like Latin ones. */
const LOOK_ALIKES = new Map(
  [
    'аaеeоoрpсcуyхxіiјjѕsԁdԛqѡwһhӏlкkмmтtнhвbгr', // Cyrillic letters, each followed by the Latin letter it looks like
    'αaεeοoρpυuχxιiκkνvτtηnβbγyωw', // Greek
    'ıiɑaɡgɩiʟlᴀaʀrᴛtɪiɴn0o1l3e4a5s7t@a$s',
  ].flatMap((pairs) => (pairs.match(/../gu) ?? []).map((pair): [string, string] => [...pair] as [string, string])),
);

const LOOKS_ALIKE = new RegExp(`[${[...LOOK_ALIKES.keys()].join('')}]`, 'gu');
/** Matches plain ASCII text, which needs only lower-casing. */
const PLAIN = /^[\t\n\r -~]*$/;

const endsOf = (text: string): string =>
  text.length <= 2 * INSPECTED_ENDS ? text : `${text.slice(0, INSPECTED_ENDS)} ${text.slice(-INSPECTED_ENDS)}`;

/**
 * Normalises a text that is not plain ASCII. NFKC can expand one character to eighteen, so the text is shortened again
 * afterwards. Marks with invisible characters between them are piled up only without these.
 */
const folded = (text: string): string =>
  withoutPiledMarks(endsOf(withoutPiledMarks(text).normalize('NFKC')).replace(INVISIBLE, ''))
    .toLowerCase()
    .normalize('NFD')
    .replace(/(?<=\p{Script=Latin})\p{M}+/gu, '')
    .normalize('NFC');

/**
 * Removes differences of case, accents and invisible characters (NFKC). White space and punctuation become one space.
 */
const plain = (text: string): string =>
  (PLAIN.test(text) ? text.toLowerCase() : folded(text)).replace(/[^\p{L}\p{M}\p{N}<>|[\]/_@$:]+/gu, ' ').trim();

const asLatin = (text: string): string => text.replace(LOOKS_ALIKE, (letter) => LOOK_ALIKES.get(letter) as string);

const scan = createScanner([...OVERRIDES, ...LEAKS]);

const find = (text: string): GuardFinding | null => {
  if (ROLE_TOKENS.some((pattern) => pattern.test(text))) return 'role_token';
  const found = scan(text);
  if (found === null) return null;
  return found < OVERRIDES.length ? 'override' : 'leak';
};

const BY_SEVERITY: readonly (GuardFinding | null)[] = ['role_token', 'override', 'leak', null];

/**
 * The most severe finding, or null. The message is inspected twice: as written, and with look-alike letters replaced.
 */
export const inspectMessage = (message: string): GuardFinding | null => {
  const read = plain(endsOf(message));
  const looks = asLatin(read);
  const found = looks === read ? [find(read)] : [find(read), find(looks)];
  return BY_SEVERITY.find((finding) => found.includes(finding)) ?? null;
};
