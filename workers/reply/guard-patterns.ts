/** What a message tries: to replace the instructions, to read them, or to pass for another speaker. */
export type GuardFinding = 'override' | 'leak' | 'role_token';

/** At most so much between the words of one attempt. */
const NEAR = '.{0,40}?';

const near = (...parts: string[]): RegExp => new RegExp(parts.map((part) => `(?:${part})`).join(NEAR), 'u');

/** By language: give up, what went before, the instructions. Folded as messages are: no accents on Latin letters. */
const OVERRIDES = [
  near(
    '\\b(?:ignore|disregard|forget|override|bypass|drop)\\b',
    '\\b(?:all|any|every|previous|prior|above|earlier|your|the|these|system)\\b',
    '\\b(?:instructions?|rules|prompts?|guidelines|directives|guardrails)\\b',
  ),
  near('\\b(?:ignorier|vergiss|vergesst|missachte|umgehe)\\w*', '\\b(?:anweisung|instruktion|regel|vorgabe|prompt)'),
  near(
    '\\b(?:ignore[rz]?|oublie[rz]?|neglige[rz]?|contourne[rz]?)\\b',
    '\\b(?:instructions|consignes|regles|directives)\\b',
  ),
  near('\\b(?:ignora|olvida|omite|descarta)\\w*', '\\b(?:instrucciones|reglas|ordenes|indicaciones|directrices)\\b'),
  near('\\b(?:ignora|dimentica|trascura|scorda)\\w*', '\\b(?:istruzioni|regole|direttive|indicazioni)\\b'),
  near('\\b(?:ignor|esque|desconsider|descart)\\w*', '\\b(?:instrucoes|regras|ordens|diretrizes|orientacoes)\\b'),
  near('\\b(?:negeer|vergeet|omzeil)\\w*', '\\b(?:instructies|regels|aanwijzingen|opdrachten)\\b'),
  near('\\b(?:zignoruj|ignoruj|zapomnij|pomin)\\w*', '\\b(?:instrukcj|polecen|zasad|wytyczn)'),
  near('(?:игнорируй|проигнорируй|забудь|отбрось|не обращай внимания)', '(?:инструкци|правил|указани|команд)'),
  near('(?:ігноруй|проігноруй|забудь|відкинь)', '(?:інструкці|правил|вказівк)'),
  near('\\b(?:talimat|kural|yonerge|komut)\\w*', '\\b(?:unut|yok say|gormezden gel|dikkate alma|gormezden)'),
  near('\\b(?:abaikan|lupakan)\\b', '\\b(?:instruksi|aturan|perintah|petunjuk)'),
  /(?:忽略|无视|無視|忘记|忘記|不要理会).{0,12}(?:指令|指示|规则|規則|提示|设定|設定)/u,
  /(?:指示|命令|ルール|規則|プロンプト|設定).{0,12}(?:無視|忘れ|破棄)/u,
  /(?:지시|명령|규칙|프롬프트|지침).{0,12}(?:무시|잊어|잊고)/u,
  /(?:تجاهل|انس|انسى|أهمل).{0,30}(?:التعليمات|القواعد|الأوامر|تعليماتك)/u,
  /(?:निर्देश|नियम|आदेश).{0,25}(?:अनदेखा|भूल|नज़रअंदाज़|नजरअंदाज)/u,
  near('\\byou are now\\b', '\\b(?:dan|unrestricted|jailbroken|developer mode|no longer)\\b'),
  near('\\b(?:enable|activate|enter)\\b', '\\b(?:developer|jailbreak|god|dan) mode\\b'),
];

/** By language: show, and what is not for show. */
const LEAKS = [
  near(
    '\\b(?:reveal|show|print|repeat|output|display|tell me|give me|what (?:is|are)|leak|translate|summari[sz]e)\\b',
    '\\b(?:(?:system|initial|hidden|secret|original) (?:prompt|instructions?|message|rules)|your (?:prompt|instructions|system message))\\b',
  ),
  near('\\brepeat\\b', '\\b(?:everything|all|the (?:text|words))\\b', '\\babove\\b'),
  near(
    '\\b(?:zeig|nenn|verrat|wiederhol|gib|drucke|ausgeben|wie lautet|was sind)\\w*',
    '\\b(?:systemprompt|system prompt|systemnachricht|deine (?:anweisungen|instruktionen)|geheime\\w* anweisung)',
  ),
  near(
    '\\b(?:montre|revele|affiche|repete|donne|quel|quelles)\\w*',
    '\\b(?:prompt (?:systeme|initial)|instructions (?:systeme|secretes|initiales|cachees)|tes instructions|vos instructions)\\b',
  ),
  near(
    '\\b(?:muestra|revela|ensena|repite|dime|dame|cual)\\w*',
    '\\b(?:prompt (?:del sistema|inicial)|instrucciones (?:del sistema|secretas|ocultas|iniciales)|tus instrucciones)\\b',
  ),
  near(
    '\\b(?:mostra|rivela|ripeti|dimmi|quali|qual)\\w*',
    '\\b(?:prompt (?:di sistema|iniziale)|istruzioni (?:di sistema|segrete|nascoste|iniziali)|(?:le )?tue istruzioni)\\b',
  ),
  near(
    '\\b(?:mostr|revel|repit|diga|quais|qual)\\w*',
    '\\b(?:prompt (?:do sistema|inicial)|instrucoes (?:do sistema|secretas|ocultas|iniciais)|suas instrucoes|tuas instrucoes)\\b',
  ),
  near(
    '\\b(?:toon|laat|geef|herhaal|onthul)\\w*',
    '\\b(?:systeemprompt|systeeminstructies|(?:je|jouw) instructies)\\b',
  ),
  near(
    '(?:покажи|раскрой|повтори|выведи|назови)',
    '(?:системн\\p{L}* (?:промпт|инструкци|сообщени)|сво\\p{L}* инструкци|скрыт\\p{L}* инструкци)',
  ),
  /(?:显示|顯示|告诉我|告訴我|输出|輸出|重复|重複|泄露).{0,12}(?:系统提示|系統提示|系统指令|你的指令|初始提示|提示词)/u,
  /(?:システムプロンプト|システム指示|あなたへの指示|初期プロンプト).{0,14}(?:見せ|教え|表示|出力|繰り返)/u,
  /(?:시스템 ?프롬프트|시스템 ?지시|너의 지침|초기 프롬프트).{0,14}(?:보여|알려|출력|반복)/u,
  /(?:أظهر|اكشف|اعرض|كرر|أخبرني).{0,25}(?:تعليمات النظام|موجه النظام|تعليماتك)/u,
];

/** What speakers are marked with in prompts; no visitor types it. */
const ROLE_TOKENS = [
  /<\|?\s?(?:im_start|im_end|im_sep|system|assistant|endoftext|eot_id|start_header_id|end_header_id|begin_of_text)\s?\|?>/u,
  /\[\/?(?:inst|system|sys)\]|<<\/?sys>>/u,
  /(?:^| )(?:###|<\/?)? ?(?:system|assistant|developer)(?: ?(?:prompt|message|override))? ?:(?= ?(?:you|ignore|new|from now|override|disregard|the user))/u,
  /<\/?visitor[ -][0-9a-f]{4,}/u,
];

export const guardPatterns: [GuardFinding, RegExp[]][] = [
  ['role_token', ROLE_TOKENS],
  ['override', OVERRIDES],
  ['leak', LEAKS],
];
