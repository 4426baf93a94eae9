import type { LexiconEntry } from './lexicon-entry.ts';

export const WESTERN: Record<string, LexiconEntry> = {
  en: {
    greeting:
      'hi|hey|hello|hello there|hi there|hey there|good morning|good afternoon|good evening|good day|howdy|hiya|yo|greetings|morning|evening',
    thanks:
      'thanks|thank you|thank you very much|thank you so much|many thanks|thanks a lot|thx|ty|tysm|cheers|much appreciated|appreciate it',
    goodbye:
      'bye|goodbye|good bye|bye bye|see you|see you later|see ya|cya|good night|have a nice day|have a good day|take care|talk later|later',
    yes: 'yes|yeah|yep|yup|sure|of course|ok|okay|right|correct|exactly|absolutely|definitely|yes please|sounds good|great|perfect|alright|fine|got it|cool|yea',
    no: 'no|nope|nah|not really|no thanks|no thank you|never mind|nevermind|not yet|not now',
    common:
      "the|is|are|was|were|what|when|where|which|who|how|why|do|does|did|can|could|would|should|will|my|your|you|i|we|they|it|this|that|these|those|have|has|had|am|be|been|with|from|for|and|not|there|please|want|need|any|some|much|many|about|of|to|get|im|dont|cant|its|whats|help|me|us|our|if|but|just|it's|i'm|don't|can't",
  },
  de: {
    greeting:
      'hallo|hallo zusammen|guten tag|guten morgen|guten abend|moin|moin moin|servus|grüß gott|grüezi|tach|hallöchen|hi|hey|mahlzeit|na',
    thanks:
      'danke|danke schön|dankeschön|vielen dank|besten dank|herzlichen dank|danke sehr|danke dir|danke euch|tausend dank|vielen lieben dank|merci',
    goodbye:
      "tschüss|tschüß|tschau|auf wiedersehen|bis bald|bis dann|bis später|schönen tag|schönen tag noch|gute nacht|ciao|mach's gut|schönen abend noch",
    yes: 'ja|jawohl|klar|na klar|gerne|genau|jup|jo|jap|natürlich|sicher|ja bitte|ja gerne|okay|ok|passt|alles klar|stimmt|richtig|sehr gut|in ordnung',
    no: 'nein|nö|nee|ne|nicht wirklich|nein danke|noch nicht|lieber nicht|auf keinen fall',
    common:
      'ich|du|er|sie|wir|ihr|ist|sind|war|bin|hast|habe|haben|habt|hat|was|wann|wo|wie|warum|wer|welche|welcher|kann|können|könnt|möchte|will|muss|der|die|das|den|dem|ein|eine|einen|einem|mein|meine|meinen|euer|eure|nicht|kein|keine|mit|für|auf|und|oder|bitte|gibt|es|viel|viele|noch|auch|zu|im|am|um|bei|von|nach|mir|mich|dir|euch|ihnen|wieviel|geht|brauche|aber|wenn|heute|morgen',
  },
  fr: {
    greeting: 'bonjour|salut|bonsoir|coucou|allô|bjr|re bonjour|bonjour à tous|slt|rebonjour',
    thanks: 'merci|merci beaucoup|merci bien|mille mercis|je vous remercie|merci à vous|grand merci|mrc',
    goodbye: 'au revoir|à bientôt|à plus|bonne journée|bonne soirée|bonne nuit|à demain|à plus tard|salut|adieu|bye',
    yes: "oui|ouais|bien sûr|d'accord|dac|ok|okay|exactement|tout à fait|oui merci|oui s'il vous plaît|parfait|volontiers|super|très bien|absolument|ouaip|carrément",
    no: 'non|non merci|pas vraiment|pas du tout|nan|pas encore|pas maintenant',
    common:
      "je|tu|il|elle|nous|vous|ils|est|sont|suis|êtes|ai|as|a|avez|avons|ont|le|la|les|un|une|des|du|de|ce|cette|ces|mon|ma|mes|votre|vos|que|qui|quoi|quand|où|comment|pourquoi|combien|quel|quelle|quels|quelles|pas|ne|avec|pour|sur|dans|et|ou|peux|puis|peut|pouvez|voudrais|veux|faut|faire|s'il|plaît|svp|y|au|aux|est-ce|c'est|j'ai|qu'est-ce|besoin|mais|plus|très|moi|ça|aide",
  },
  es: {
    greeting:
      'hola|buenas|buenos días|buenas tardes|buenas noches|hola buenas|qué tal|hola qué tal|holi|saludos|buen día|holaa',
    thanks: 'gracias|muchas gracias|mil gracias|muchísimas gracias|se lo agradezco|te lo agradezco|grax',
    goodbye: 'adiós|hasta luego|hasta pronto|hasta mañana|nos vemos|chao|chau|que tenga un buen día|hasta la vista',
    yes: 'sí|si|claro|claro que sí|por supuesto|vale|de acuerdo|exacto|correcto|sí por favor|perfecto|ok|bueno|dale|genial|sip|está bien|muy bien',
    no: 'no|no gracias|para nada|todavía no|aún no|ahora no|nop|tampoco',
    common:
      'el|la|los|las|un|una|de|del|que|qué|cómo|cuándo|dónde|cuál|cuáles|quién|por|para|con|es|son|está|están|estoy|soy|hay|tengo|tiene|tienen|tienes|puedo|puede|pueden|puedes|quiero|quisiera|necesito|mi|mis|su|sus|tu|y|o|en|al|lo|le|me|se|no|muy|más|pero|porque|cuánto|cuánta|cuántos|favor|ustedes|usted|hacer|hace|como|ya|donde|cuando|cuanto|esto|esta|este|ayuda|hoy',
  },
  pt: {
    greeting: 'olá|oi|bom dia|boa tarde|boa noite|oie|opa|e aí|tudo bem|oi tudo bem|olá tudo bem|alô',
    thanks: 'obrigado|obrigada|muito obrigado|muito obrigada|valeu|brigado|brigada|agradeço|obg|obrigadão',
    goodbye: 'tchau|até logo|até mais|até breve|adeus|até amanhã|tenha um bom dia|bom fim de semana|falou',
    yes: 'sim|claro|com certeza|isso|isso mesmo|exatamente|sim por favor|pode ser|beleza|tá bom|tudo certo|perfeito|certo|ok|blz|está bem|ótimo',
    no: 'não|nao|não obrigado|não obrigada|ainda não|agora não|nada|de jeito nenhum',
    common:
      'o|a|os|as|um|uma|do|da|dos|das|de|que|como|quando|onde|qual|quais|quem|quanto|quantos|custa|por|para|pra|com|é|são|está|estão|estou|sou|tem|têm|tenho|posso|pode|podem|quero|queria|gostaria|preciso|meu|minha|meus|minhas|seu|sua|você|vocês|voce|vc|vcs|eu|nós|não|mais|mas|porque|porquê|no|na|nos|nas|em|ao|favor|fazer|faço|isso|este|esta|há|ajuda|hoje|já|até|também',
  },
  it: {
    greeting: 'ciao|buongiorno|buonasera|buon giorno|buona sera|salve|ehi|buon pomeriggio|ciao a tutti|pronto|buondì',
    thanks: 'grazie|grazie mille|molte grazie|ti ringrazio|la ringrazio|grazie tante|grazie infinite|vi ringrazio',
    goodbye:
      'arrivederci|a presto|a dopo|ci vediamo|buona giornata|buona serata|buonanotte|addio|alla prossima|ciao ciao',
    yes: "sì|si|certo|certamente|va bene|d'accordo|esatto|ok|sì grazie|sì per favore|perfetto|volentieri|ovvio|benissimo|giusto|bene",
    no: "no|no grazie|non ancora|per niente|non proprio|adesso no|nient'altro",
    common:
      "il|lo|la|i|gli|le|un|una|uno|di|del|della|dei|delle|che|come|quando|dove|quale|quali|chi|quanto|quanta|costa|perché|per|con|è|sono|sei|siete|ho|ha|hai|hanno|avete|posso|può|potete|puoi|vorrei|voglio|devo|mio|mia|miei|vostro|vostra|vostri|tuo|sua|io|voi|noi|non|più|ma|nel|nella|alla|al|da|dal|su|sul|e|o|c'è|ci|mi|si|anche|favore|fare|questo|questa|cosa|aiuto|oggi|dovrei|bisogno",
  },
  nl: {
    greeting: 'hallo|hoi|goedemorgen|goedemiddag|goedenavond|goedendag|hey|dag|heey|goeiemorgen|goedenmiddag|goeiedag',
    thanks:
      'bedankt|dank je|dank je wel|dankjewel|dank u|dank u wel|dankuwel|hartelijk dank|heel erg bedankt|thanks|dankje|alvast bedankt|super bedankt',
    goodbye:
      'doei|tot ziens|dag|doeg|tot straks|tot later|fijne dag|fijne dag nog|fijne avond|welterusten|houdoe|tot snel|groetjes',
    yes: 'ja|jazeker|zeker|natuurlijk|graag|ja graag|ja hoor|oké|ok|prima|klopt|precies|inderdaad|goed|is goed|jawel|doe maar|top',
    no: 'nee|nee bedankt|nee hoor|nog niet|niet echt|liever niet|nee dank je|neen',
    common:
      'ik|jij|je|hij|zij|wij|we|jullie|u|is|zijn|ben|was|heb|heeft|hebben|wat|wanneer|waar|hoe|waarom|wie|welke|kan|kunnen|kunt|wil|wilt|moet|het|een|de|van|mijn|jouw|uw|ons|niet|geen|met|voor|op|aan|en|of|er|dit|dat|deze|ook|nog|maar|bij|naar|om|te|graag|mag|hoeveel|hoelang|alstublieft|alsjeblieft|aub|zou|graag|hulp|nodig|vandaag|wordt|worden|krijg|doen|als',
  },
  ca: {
    greeting: 'hola|bon dia|bona tarda|bona nit|ei|bones|bon vespre|hola bon dia',
    thanks: 'gràcies|moltes gràcies|mercès|merci|moltíssimes gràcies|us ho agraeixo|gràcies per tot',
    goodbye: 'adéu|fins aviat|fins demà|fins ara|a reveure|que vagi bé|adéu siau|fins després',
    yes: "sí|és clar|clar|d'acord|perfecte|molt bé|sí si us plau|exacte|i tant|val|entesos",
    no: 'no|no gràcies|encara no|no pas|ara no|gens',
    common:
      'el|la|els|les|un|una|de|del|que|què|com|quan|on|quin|quina|quins|quines|qui|per|amb|és|són|està|tinc|té|teniu|tenen|puc|pot|podeu|vull|voldria|necessito|meu|meva|meus|vostre|vostra|seva|i|o|al|als|no|més|però|perquè|quant|costa|si|us|plau|fer|hi|ha|aquest|aquesta|això|també|jo|som|ajuda|avui|on|fins|vosaltres|hora|obriu|obrir|comanda',
  },
  ro: {
    greeting: 'bună|salut|bună ziua|bună dimineața|bună seara|servus|hei|noroc|bună tuturor|buna ziua|bună tuturor',
    thanks: 'mulțumesc|mulțumesc mult|mersi|merci|mulțumesc frumos|vă mulțumesc|îți mulțumesc|mulţumesc|mersi mult',
    goodbye: 'la revedere|pa|pa pa|pe curând|o zi bună|noapte bună|o seară frumoasă|numai bine|ne vedem',
    yes: 'da|sigur|desigur|bineînțeles|exact|corect|da te rog|da vă rog|perfect|bine|în regulă|de acord|normal|super|foarte bine',
    no: 'nu|nu mulțumesc|nu chiar|încă nu|deloc|nu acum|niciodată',
    common:
      'eu|tu|el|ea|noi|voi|este|sunt|e|sunteți|am|ai|are|aveți|au|ce|când|unde|cum|de|care|cine|cât|câți|câte|costă|pot|poate|puteți|vreau|aș|doresc|trebuie|meu|mea|mele|dvs|dumneavoastră|la|cu|pentru|pe|în|din|și|sau|nu|mai|dar|un|o|unui|unei|să|se|mă|îmi|vă|rog|fac|face|ajutor|astăzi|azi|acest|această|asta|aici|cumva|există|până|după',
  },
};
