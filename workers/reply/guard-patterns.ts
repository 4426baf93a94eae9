import type { ProximityPattern } from './guard-scan.ts';

/** What a message tries to do: replace the instructions, read them, or imitate another role. */
export type GuardFinding = 'override' | 'leak' | 'role_token';

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
export const OVERRIDES: readonly ProximityPattern[] = [
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
export const LEAKS: readonly ProximityPattern[] = [
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
export const ROLE_TOKENS: readonly RegExp[] = [
  /<\|?\s?(?:im_start|im_end|im_sep|system|assistant|endoftext|eot_id|start_header_id|end_header_id|begin_of_text)\s?\|?>/u,
  /\[\/?(?:inst|system|sys)\]|<<\/?sys>>/u,
  /(?:^| )(?:###|<\/?)? ?(?:system|assistant|developer)(?: ?(?:prompt|message|override))? ?:(?= ?(?:you|ignore|new|from now|override|disregard|the user))/u,
  /<\/?visitor[ -][0-9a-f]{4}/u,
];
