import type { LexiconEntry } from './lexicon-entry.ts';

export const NORTHERN: Record<string, LexiconEntry> = {
  sv: {
    greeting: 'hej|hejsan|hallå|god morgon|god kväll|tjena|tja|god dag|god eftermiddag|tjenare|hej hej|halloj|goddag',
    thanks: 'tack|tack så mycket|tusen tack|stort tack|tackar|tack snälla|tack för hjälpen',
    goodbye: 'hej då|hejdå|adjö|vi ses|ha en bra dag|ha det bra|god natt|ha en fin dag|hej så länge|hörs',
    yes: 'ja|japp|jajamän|visst|självklart|absolut|ja tack|okej|ok|precis|gärna|bra|stämmer|jo|toppen|jadå',
    no: 'nej|nej tack|inte än|nä|icke|inte alls|inte nu|nix',
    common:
      'jag|du|han|hon|vi|ni|är|var|har|hade|vad|när|hur|varför|vem|vilken|vilka|vilket|kan|kunna|vill|ska|måste|det|den|en|ett|och|eller|inte|ingen|med|för|på|till|från|av|om|min|mitt|mina|er|era|ert|din|ditt|finns|skulle|gör|göra|få|får|mycket|många|också|men|att|som|mig|oss|snälla|kostar|behöver|hjälp|idag|någon|något|jobbar|öppet|hos',
  },
  da: {
    greeting: 'hej|goddag|godmorgen|god morgen|godaften|god aften|hejsa|halløj|hallo|davs|hej med jer|dav',
    thanks: 'tak|mange tak|tusind tak|tak skal du have|tak for hjælpen|tak skal i have|takker|tak for det',
    goodbye: 'farvel|hej hej|vi ses|hav en god dag|godnat|ha det godt|ha en god dag|på gensyn|vi tales ved',
    yes: 'ja|jep|selvfølgelig|ja tak|naturligvis|okay|ok|præcis|gerne|bestemt|fint|korrekt|jo|klart|helt sikkert|super',
    no: 'nej|nej tak|ikke endnu|niks|slet ikke|næ|ikke nu|nej ellers tak',
    common:
      'jeg|du|han|hun|vi|i|er|var|har|havde|hvad|hvornår|hvor|hvordan|hvorfor|hvem|hvilken|hvilke|kan|kunne|vil|skal|må|det|den|en|et|og|eller|ikke|ingen|med|for|på|til|fra|af|om|min|mit|mine|jeres|din|dit|findes|ville|gør|gøre|få|får|meget|mange|også|men|at|som|mig|os|venligst|koster|gerne|hjælp|dag|nogen|noget|åbent|hos|mig|kan|bliver|blive|virker|åbner|pakke|hvad|jeres|nogle',
  },
  no: {
    greeting: 'hei|hallo|god morgen|god kveld|god dag|heisann|god ettermiddag|hei hei|hei på deg|heia|morn',
    thanks: 'takk|tusen takk|takk skal du ha|mange takk|takk for hjelpen|takker|takk så mye|tusen hjertelig takk',
    goodbye: 'ha det|hade|ha det bra|farvel|vi sees|ha en fin dag|god natt|ha en god dag|snakkes|på gjensyn',
    yes: 'ja|jepp|selvfølgelig|ja takk|selvsagt|greit|ok|akkurat|gjerne|klart|stemmer|jo|javisst|den er grei|kjempefint|flott',
    no: 'nei|nei takk|ikke ennå|neppe|niks|ikke nå|slett ikke|overhodet ikke',
    common:
      'jeg|du|han|hun|vi|dere|er|var|har|hadde|hva|når|hvor|hvordan|hvorfor|hvem|hvilken|hvilke|kan|kunne|vil|skal|må|det|den|en|et|ei|og|eller|ikke|ingen|med|for|på|til|fra|av|om|min|mitt|mine|deres|din|ditt|finnes|ville|gjør|gjøre|få|får|mye|mange|også|men|å|som|meg|oss|vennligst|koster|hjelp|dag|noen|noe|åpent|hos|bli|blir|ønsker|trenger|fungerer|åpner|pakken|hvilket',
  },
  fi: {
    greeting:
      'hei|moi|terve|hyvää huomenta|hyvää päivää|hyvää iltaa|moikka|huomenta|heippa|päivää|moro|iltaa|tervehdys|no moi',
    thanks: 'kiitos|kiitos paljon|kiitti|paljon kiitoksia|kiitoksia|suuri kiitos|kiitos avusta|tuhannet kiitokset',
    goodbye: 'näkemiin|hei hei|moi moi|nähdään|hyvää päivänjatkoa|hyvää yötä|heippa|heihei|palataan|hyvää illanjatkoa',
    yes: 'kyllä|joo|juu|tietysti|toki|kyllä kiitos|ok|selvä|aivan|hyvä|sopii|niin|ilman muuta|totta kai|juuri niin',
    no: 'ei|ei kiitos|en|ei vielä|ei todellakaan|ei ole|ei nyt|ei mitään',
    common:
      'minä|sinä|hän|me|te|he|on|ovat|olen|oletko|olette|oli|mikä|mitä|milloin|missä|miten|miksi|kuka|mikä|mitkä|voi|voin|voiko|voitte|voinko|haluan|haluaisin|pitää|täytyy|minun|sinun|teidän|se|tämä|ja|tai|ei|kanssa|mutta|että|kuin|kuinka|paljonko|maksaa|onko|saako|saanko|minulla|teillä|myös|jos|tarvitsen|apua|tänään|auki|mistä|mihin|koska|kauanko|kiinni|siis|vielä|nyt|kun',
  },
  et: {
    greeting: 'tere|tere hommikust|tere päevast|tere õhtust|tervist|hei|tšau|tere päevast|halloo',
    thanks: 'aitäh|tänan|suur tänu|tänan väga|suur aitäh|aitäh abi eest|tänud',
    goodbye: 'head aega|nägemist|nägemiseni|tšau|kõike head|head ööd|head päeva|kena päeva',
    yes: 'jah|jaa|muidugi|loomulikult|jah palun|olgu|sobib|õige|hästi|just|selge|täpselt',
    no: 'ei|ei aitäh|veel mitte|mitte|ei taha|üldse mitte|ei tänan',
    common:
      'mina|ma|sina|sa|tema|meie|teie|te|on|olen|oli|mis|mida|millal|kus|kuidas|miks|kes|milline|saab|saan|saate|kas|tahan|soovin|pean|minu|mu|teie|see|ja|või|ei|koos|aga|et|kui|palju|maksab|mul|teil|ka|palun|vaja|abi|täna|kaua|kust|kuhu|tahaksin|sooviksin|kohta|pole|mulle|meil|avatud|lahti|võimalik',
  },
  lv: {
    greeting: 'sveiki|labdien|labrīt|labvakar|čau|sveiks|sveika|labrit|sveicināti|esiet sveicināti',
    thanks: 'paldies|liels paldies|pateicos|paldies jums|liels paldies jums|paldies par palīdzību',
    goodbye: 'uz redzēšanos|atā|visu labu|ar labunakti|čau čau|lai jums jauka diena|uz tikšanos',
    yes: 'jā|protams|jā lūdzu|labi|skaidrs|pareizi|tieši tā|der|lieliski|noteikti',
    no: 'nē|nē paldies|vēl nē|nemaz|pagaidām nē|ne tagad',
    common:
      'es|tu|viņš|viņa|mēs|jūs|ir|esmu|bija|kas|ko|kad|kur|kā|kāpēc|kurš|kāda|kāds|kādi|var|varu|varat|gribu|vēlos|man|jums|mans|mana|jūsu|šis|un|vai|ne|nav|ar|bet|ka|cik|maksā|par|no|uz|arī|lūdzu|vajag|palīdzību|šodien|līdz|pie|kādas|tiek|vēlētos|nevaru|manu|atvērts|darba|būs|strādājat|pieejams|nepieciešams|atverat|strādā|kāds',
  },
  lt: {
    greeting: 'labas|sveiki|laba diena|labas rytas|labas vakaras|sveikas|sveika|labutis|gera diena|labukas',
    thanks: 'ačiū|labai ačiū|dėkui|dėkoju|nuoširdžiai dėkoju|ačiū už pagalbą|aciu',
    goodbye: 'viso gero|iki|iki pasimatymo|ate|geros dienos|labanakt|sudie|labos nakties|gražios dienos',
    yes: 'taip|žinoma|aišku|taip prašau|gerai|tinka|teisingai|būtent|puiku|jo|be abejo|tikrai taip',
    no: 'ne|ne ačiū|dar ne|visai ne|ne dabar|tikrai ne|jokiu būdu',
    common:
      'aš|tu|jis|ji|mes|jūs|yra|esu|buvo|kas|ką|kada|kur|kaip|kodėl|koks|kokia|kokie|kurie|gali|galiu|galite|noriu|norėčiau|man|jums|mano|jūsų|tai|šis|ir|ar|arba|nėra|su|bet|kad|kiek|kainuoja|apie|iš|į|ant|taip pat|prašau|reikia|pagalbos|šiandien|nuo|iki|turite|turi|būtų|negaliu|mėnesį|dirbate|kokį|kokios|galima|kuri|savo',
  },
  pl: {
    greeting: 'cześć|dzień dobry|dobry wieczór|hej|witam|siema|witaj|dobry|siemka|halo|witajcie|hejka',
    thanks:
      'dziękuję|dzięki|dziękuję bardzo|bardzo dziękuję|wielkie dzięki|dziekuje|dzięki wielkie|serdecznie dziękuję|dziękuje',
    goodbye:
      'do widzenia|do zobaczenia|pa|na razie|dobranoc|miłego dnia|żegnam|papa|do jutra|miłego wieczoru|do usłyszenia',
    yes: 'tak|jasne|oczywiście|pewnie|tak proszę|dobrze|ok|zgadza się|dokładnie|super|świetnie|no tak|spoko|w porządku|zgoda',
    no: 'nie|nie dziękuję|jeszcze nie|wcale nie|raczej nie|nie teraz|na razie nie',
    common:
      'ja|ty|on|ona|my|wy|jest|są|jestem|był|co|kiedy|gdzie|jak|dlaczego|kto|który|która|jaki|jaka|jakie|ile|kosztuje|czy|mogę|może|możecie|można|chcę|chciałbym|chciałabym|muszę|mój|moja|moje|mojego|wasz|wasze|państwo|państwa|to|ten|ta|i|lub|albo|nie|z|ze|w|we|na|do|od|dla|o|po|się|mi|mam|macie|ma|proszę|potrzebuję|pomocy|dzisiaj|dziś|ale|też|już|przez|jakiś|gdy|tylko|za|u|was',
  },
  cs: {
    greeting: 'ahoj|dobrý den|dobré ráno|dobrý večer|čau|nazdar|zdravím|čus|zdravíčko|dobré odpoledne|dobrej',
    thanks: 'děkuji|díky|děkuju|moc děkuji|mockrát děkuji|děkuji vám|díky moc|dekuji|děkuji mnohokrát|velké díky',
    goodbye: 'na shledanou|nashledanou|sbohem|zatím|měj se|hezký den|dobrou noc|mějte se|pěkný den|na viděnou|čau čau',
    yes: 'ano|jo|jasně|samozřejmě|ano prosím|dobře|ok|přesně|určitě|správně|v pořádku|fajn|jistě|souhlasím|super',
    no: 'ne|ne děkuji|ještě ne|vůbec ne|ani ne|teď ne|nechci|ne díky',
    common:
      'já|ty|on|ona|my|vy|je|jsou|jsem|byl|co|kdy|kde|jak|proč|kdo|který|která|které|jaký|jaká|jaké|kolik|stojí|mohu|můžu|může|můžete|lze|chci|chtěl|bych|chtěla|musím|můj|moje|mojí|mou|váš|vaše|vám|to|ten|ta|a|nebo|ne|s|se|v|ve|na|do|od|pro|o|po|mi|mám|máte|má|prosím|potřebuji|pomoc|dnes|ale|také|už|jste|u|za|při|nějaký|nejde|jestli|si|být|aby|když|kam',
  },
  sk: {
    greeting: 'ahoj|dobrý deň|dobré ráno|dobrý večer|čau|nazdar|zdravím|čaute|servus|dobré popoludnie',
    thanks: 'ďakujem|vďaka|ďakujem pekne|veľmi pekne ďakujem|ďakujem veľmi pekne|dakujem|ďakujem vám|veľká vďaka',
    goodbye: 'dovidenia|do videnia|zbohom|maj sa|pekný deň|dobrú noc|majte sa|zatiaľ|pekný večer|čau čau',
    yes: 'áno|jasné|samozrejme|áno prosím|dobre|ok|presne|určite|správne|v poriadku|hej|iste|fajn|súhlasím',
    no: 'nie|nie ďakujem|ešte nie|vôbec nie|teraz nie|ani nie|nechcem',
    common:
      'ja|ty|on|ona|my|vy|je|sú|som|bol|čo|kedy|kde|ako|prečo|kto|ktorý|ktorá|ktoré|aký|aká|aké|koľko|stojí|môžem|môže|môžete|dá|chcem|chcel|by|chcela|musím|môj|moja|moje|moju|váš|vaše|vám|to|ten|tá|a|alebo|nie|s|so|v|vo|na|do|od|pre|o|po|mi|mám|máte|má|prosím|potrebujem|pomoc|dnes|ale|tiež|už|ste|u|za|pri|nejaký|nejde|či|sa|si|byť|aby|keď|kam|ďalej',
  },
  sl: {
    greeting: 'živjo|zdravo|dober dan|dobro jutro|dober večer|pozdravljeni|oj|hej|pozdrav|lepo pozdravljeni',
    thanks: 'hvala|najlepša hvala|hvala lepa|hvala vam|hvala za pomoč|iskrena hvala|lepa hvala',
    goodbye: 'nasvidenje|adijo|se vidimo|lep dan|lahko noč|srečno|lep pozdrav|na svidenje|lep večer',
    yes: 'ja|seveda|da|ja prosim|v redu|prav|točno|drži|super|odlično|vsekakor|dobro',
    no: 'ne|ne hvala|še ne|sploh ne|zdaj ne|niti ne|ne še',
    common:
      'jaz|ti|on|ona|mi|vi|je|so|sem|ste|bil|kaj|kdaj|kje|kako|zakaj|kdo|kateri|katera|katere|kakšen|kakšna|kakšne|koliko|stane|lahko|hočem|želim|rad|rada|bi|moram|moj|moja|moje|vaš|vaša|vaše|to|ta|in|ali|ne|z|s|v|na|do|od|za|o|po|se|mi|imam|imate|ima|prosim|potrebujem|pomoč|danes|ampak|tudi|že|ker|kam|če|nekaj|pri|kot|vam|mojo|svoje|ni',
  },
  hr: {
    greeting: 'bok|dobar dan|dobro jutro|dobra večer|pozdrav|bog|ćao|hej|zdravo|dobro veče|dobar dan svima',
    thanks: 'hvala|hvala lijepa|puno hvala|hvala vam|hvala puno|zahvaljujem|hvala na pomoći|najljepša hvala',
    goodbye: 'doviđenja|vidimo se|laku noć|ugodan dan|zbogom|lijep pozdrav|adio|ugodna večer|čujemo se',
    yes: 'da|naravno|da molim|može|u redu|točno|svakako|super|odlično|ok|dobro|tako je|nego što',
    no: 'ne|ne hvala|još ne|nikako|ne sada|uopće ne|ma ne',
    common:
      'ja|ti|on|ona|mi|vi|je|su|sam|ste|bio|što|kada|kad|gdje|kako|zašto|tko|koji|koja|koje|kakav|kakva|koliko|košta|mogu|može|možete|želim|želio|htio|bih|moram|moj|moja|moje|moju|vaš|vaša|vaše|to|taj|ta|i|ili|ne|s|sa|u|na|do|od|za|o|po|se|mi|imam|imate|ima|molim|trebam|pomoć|danas|ali|također|već|jer|kamo|ako|nešto|kod|kao|vam|svoju|nije|li|da|treba|gdje|dostava|tjedan|tjedno|uvjeti|narudžba|nudite',
  },
  hu: {
    greeting:
      'szia|sziasztok|helló|jó napot|jó reggelt|jó estét|üdv|szép napot|jó napot kívánok|hali|üdvözlöm|szervusz|halihó',
    thanks: 'köszönöm|köszi|köszönöm szépen|nagyon köszönöm|köszi szépen|hálásan köszönöm|kösz|köszönjük',
    goodbye: 'viszlát|viszontlátásra|szia|sziasztok|jó éjszakát|szép napot|további szép napot|pá|minden jót|viszhall',
    yes: 'igen|persze|természetesen|igen kérem|rendben|oké|ok|pontosan|jó|jól van|hogyne|így van|helyes|szuper|okés',
    no: 'nem|nem köszönöm|még nem|egyáltalán nem|most nem|dehogy|nem kell',
    common:
      'én|te|ő|mi|ti|ők|van|vannak|vagyok|volt|mi|mit|mikor|hol|hogyan|hogy|miért|ki|melyik|milyen|mennyi|mennyibe|kerül|lehet|tudok|tud|tudnak|tudom|szeretnék|szeretném|akarok|kell|az|a|ez|és|vagy|nem|nincs|egy|meg|is|de|ha|már|még|ide|kérem|legyen|segítség|segítséget|ma|mennyire|meddig|hova|honnan|önök|önöknek|nekem|csak|fel|el|lesz|tudnék|ezt|azt|nyitva|vele|után',
  },
};
