import { baseLanguage } from '../../../src/language/base.ts';

/** What an assistant says by itself, in the visitor's language; an assistant's own wording goes before these. */
export type TextKey =
  | 'greeting'
  | 'thanks'
  | 'goodbye'
  | 'yes'
  | 'no'
  /** Not sure enough to answer; goes with an `escalate` action. */
  | 'unsure'
  /** The engine and its fall-back failed. */
  | 'apology'
  /** Said once when a person takes over. */
  | 'holding'
  /** Two answers are about as likely. */
  | 'askBack'
  | 'contactNoted'
  /** Before an answer in another language; `{language}` is that language's name. */
  | 'otherLanguage'
  /** An assistant without knowledge. */
  | 'noKnowledge'
  /** "Are you a robot?" */
  | 'whoAmI'
  /** Label of the button that asks for a person. */
  | 'talkToPerson';

type Texts = Record<TextKey, string>;

const TEXTS: Readonly<Record<string, Texts>> = {
  en: {
    greeting: 'Hello! How can I help you?',
    thanks: "You're welcome! Is there anything else I can help with?",
    goodbye: 'Goodbye, and have a nice day!',
    yes: 'Great! What else would you like to know?',
    no: 'All right. If you have another question, just ask.',
    unsure:
      "I'm not sure I have the right answer to that. You can put it in other words, leave your e-mail or phone number, or talk to a person.",
    apology: "I'm sorry, something went wrong on our side. Please try again in a moment.",
    holding: 'Thank you for your message. A member of our team will reply to you here as soon as possible.',
    askBack: 'Did you mean one of these?',
    contactNoted: 'Thank you, I have noted your contact details. Our team will get back to you.',
    otherLanguage: 'I only have this answer in another language ({language}):',
    noKnowledge: 'Thank you for your message! Leave your e-mail or phone number and our team will get back to you.',
    whoAmI: "I'm a virtual assistant. I can answer questions or pass you on to a person.",
    talkToPerson: 'Talk to a person',
  },
  de: {
    greeting: 'Hallo! Wie kann ich Ihnen helfen?',
    thanks: 'Gern geschehen! Kann ich sonst noch etwas für Sie tun?',
    goodbye: 'Auf Wiedersehen und einen schönen Tag!',
    yes: 'Sehr gut! Was möchten Sie noch wissen?',
    no: 'In Ordnung. Wenn Sie eine andere Frage haben, fragen Sie einfach.',
    unsure:
      'Ich bin nicht sicher, ob ich darauf die richtige Antwort habe. Sie können die Frage anders formulieren, Ihre E-Mail-Adresse oder Telefonnummer hinterlassen oder mit einem Menschen sprechen.',
    apology: 'Es tut mir leid, bei uns ist etwas schiefgegangen. Bitte versuchen Sie es gleich noch einmal.',
    holding: 'Danke für Ihre Nachricht. Jemand aus unserem Team antwortet Ihnen hier so bald wie möglich.',
    askBack: 'Meinten Sie eine dieser Fragen?',
    contactNoted: 'Danke, ich habe Ihre Kontaktdaten notiert. Unser Team meldet sich bei Ihnen.',
    otherLanguage: 'Diese Antwort habe ich nur in einer anderen Sprache ({language}):',
    noKnowledge:
      'Danke für Ihre Nachricht! Hinterlassen Sie Ihre E-Mail-Adresse oder Telefonnummer, und unser Team meldet sich bei Ihnen.',
    whoAmI: 'Ich bin ein virtueller Assistent. Ich kann Fragen beantworten oder Sie an einen Menschen weitergeben.',
    talkToPerson: 'Mit einem Menschen sprechen',
  },
  fr: {
    greeting: 'Bonjour ! Comment puis-je vous aider ?',
    thanks: 'Avec plaisir ! Puis-je vous aider pour autre chose ?',
    goodbye: 'Au revoir et bonne journée !',
    yes: "Très bien ! Que souhaitez-vous savoir d'autre ?",
    no: "D'accord. Si vous avez une autre question, n'hésitez pas.",
    unsure:
      "Je ne suis pas sûr d'avoir la bonne réponse. Vous pouvez reformuler, laisser votre e-mail ou votre numéro de téléphone, ou parler à une personne.",
    apology: 'Je suis désolé, un problème est survenu de notre côté. Veuillez réessayer dans un instant.',
    holding: 'Merci pour votre message. Un membre de notre équipe vous répondra ici dès que possible.',
    askBack: "Vouliez-vous dire l'une de ces questions ?",
    contactNoted: "Merci, j'ai bien noté vos coordonnées. Notre équipe vous recontactera.",
    otherLanguage: "Je n'ai cette réponse que dans une autre langue ({language}) :",
    noKnowledge:
      'Merci pour votre message ! Laissez votre e-mail ou votre numéro de téléphone et notre équipe vous recontactera.',
    whoAmI:
      'Je suis un assistant virtuel. Je peux répondre à vos questions ou vous mettre en relation avec une personne.',
    talkToPerson: 'Parler à une personne',
  },
  es: {
    greeting: '¡Hola! ¿En qué puedo ayudarle?',
    thanks: '¡De nada! ¿Puedo ayudarle en algo más?',
    goodbye: '¡Hasta luego y que tenga un buen día!',
    yes: '¡Muy bien! ¿Qué más le gustaría saber?',
    no: 'De acuerdo. Si tiene otra pregunta, aquí estoy.',
    unsure:
      'No estoy seguro de tener la respuesta correcta. Puede decirlo con otras palabras, dejar su correo o teléfono, o hablar con una persona.',
    apology: 'Lo siento, algo ha fallado por nuestra parte. Inténtelo de nuevo en un momento.',
    holding: 'Gracias por su mensaje. Una persona de nuestro equipo le responderá aquí lo antes posible.',
    askBack: '¿Se refiere a una de estas preguntas?',
    contactNoted: 'Gracias, he anotado sus datos de contacto. Nuestro equipo se pondrá en contacto con usted.',
    otherLanguage: 'Solo tengo esta respuesta en otro idioma ({language}):',
    noKnowledge: '¡Gracias por su mensaje! Deje su correo o teléfono y nuestro equipo se pondrá en contacto con usted.',
    whoAmI: 'Soy un asistente virtual. Puedo responder preguntas o pasarle con una persona.',
    talkToPerson: 'Hablar con una persona',
  },
  pt: {
    greeting: 'Olá! Como posso ajudar?',
    thanks: 'De nada! Posso ajudar em mais alguma coisa?',
    goodbye: 'Até logo e tenha um bom dia!',
    yes: 'Ótimo! O que mais gostaria de saber?',
    no: 'Tudo bem. Se tiver outra pergunta, é só dizer.',
    unsure:
      'Não tenho certeza de ter a resposta certa. Pode dizer de outra forma, deixar o seu e-mail ou telefone, ou falar com uma pessoa.',
    apology: 'Desculpe, algo correu mal do nosso lado. Tente novamente daqui a pouco.',
    holding: 'Obrigado pela sua mensagem. Alguém da nossa equipe responderá aqui o mais rápido possível.',
    askBack: 'Quis dizer uma destas perguntas?',
    contactNoted: 'Obrigado, anotei os seus contatos. A nossa equipe entrará em contato.',
    otherLanguage: 'Só tenho esta resposta em outro idioma ({language}):',
    noKnowledge: 'Obrigado pela sua mensagem! Deixe o seu e-mail ou telefone e a nossa equipe entrará em contato.',
    whoAmI: 'Sou um assistente virtual. Posso responder a perguntas ou passar você para uma pessoa.',
    talkToPerson: 'Falar com uma pessoa',
  },
  it: {
    greeting: 'Ciao! Come posso aiutarla?',
    thanks: 'Prego! Posso aiutarla in altro?',
    goodbye: 'Arrivederci e buona giornata!',
    yes: 'Bene! Che altro vorrebbe sapere?',
    no: "Va bene. Se ha un'altra domanda, sono qui.",
    unsure:
      'Non sono sicuro di avere la risposta giusta. Può dirlo con altre parole, lasciare la sua e-mail o il suo telefono, oppure parlare con una persona.',
    apology: 'Mi dispiace, qualcosa è andato storto da parte nostra. Riprovi tra un momento.',
    holding: 'Grazie per il suo messaggio. Una persona del nostro team le risponderà qui appena possibile.',
    askBack: 'Intendeva una di queste domande?',
    contactNoted: 'Grazie, ho annotato i suoi contatti. Il nostro team la ricontatterà.',
    otherLanguage: "Ho questa risposta solo in un'altra lingua ({language}):",
    noKnowledge: 'Grazie per il suo messaggio! Lasci la sua e-mail o il suo telefono e il nostro team la ricontatterà.',
    whoAmI: 'Sono un assistente virtuale. Posso rispondere alle domande o metterla in contatto con una persona.',
    talkToPerson: 'Parlare con una persona',
  },
  nl: {
    greeting: 'Hallo! Waarmee kan ik u helpen?',
    thanks: 'Graag gedaan! Kan ik nog ergens mee helpen?',
    goodbye: 'Tot ziens en een fijne dag!',
    yes: 'Prima! Wat wilt u nog meer weten?',
    no: 'Goed. Hebt u nog een vraag, stel hem gerust.',
    unsure:
      'Ik weet niet zeker of ik hierop het juiste antwoord heb. U kunt het anders verwoorden, uw e-mailadres of telefoonnummer achterlaten, of met een medewerker praten.',
    apology: 'Sorry, er ging iets mis aan onze kant. Probeer het zo nog eens.',
    holding: 'Bedankt voor uw bericht. Iemand van ons team antwoordt u hier zo snel mogelijk.',
    askBack: 'Bedoelde u een van deze vragen?',
    contactNoted: 'Bedankt, ik heb uw contactgegevens genoteerd. Ons team neemt contact met u op.',
    otherLanguage: 'Ik heb dit antwoord alleen in een andere taal ({language}):',
    noKnowledge:
      'Bedankt voor uw bericht! Laat uw e-mailadres of telefoonnummer achter en ons team neemt contact met u op.',
    whoAmI: 'Ik ben een virtuele assistent. Ik kan vragen beantwoorden of u doorverbinden met een medewerker.',
    talkToPerson: 'Met een medewerker praten',
  },
  ca: {
    greeting: 'Hola! En què us puc ajudar?',
    thanks: 'De res! Us puc ajudar en alguna cosa més?',
    goodbye: 'Adéu i que tingueu un bon dia!',
    yes: 'Molt bé! Què més voldríeu saber?',
    no: "D'acord. Si teniu una altra pregunta, digueu-me.",
    unsure:
      'No estic segur de tenir la resposta correcta. Podeu dir-ho amb altres paraules, deixar el vostre correu o telèfon, o parlar amb una persona.',
    apology: "Ho sento, alguna cosa ha fallat per part nostra. Torneu-ho a provar d'aquí a un moment.",
    holding:
      'Gràcies pel vostre missatge. Una persona del nostre equip us respondrà aquí tan aviat com sigui possible.',
    askBack: "Us referiu a una d'aquestes preguntes?",
    contactNoted:
      'Gràcies, he anotat les vostres dades de contacte. El nostre equip es posarà en contacte amb vosaltres.',
    otherLanguage: 'Només tinc aquesta resposta en un altre idioma ({language}):',
    noKnowledge:
      'Gràcies pel vostre missatge! Deixeu el vostre correu o telèfon i el nostre equip es posarà en contacte amb vosaltres.',
    whoAmI: 'Soc un assistent virtual. Puc respondre preguntes o passar-vos amb una persona.',
    talkToPerson: 'Parlar amb una persona',
  },
  ro: {
    greeting: 'Bună ziua! Cu ce vă pot ajuta?',
    thanks: 'Cu plăcere! Vă mai pot ajuta cu ceva?',
    goodbye: 'La revedere și o zi frumoasă!',
    yes: 'Foarte bine! Ce ați mai dori să știți?',
    no: 'În regulă. Dacă aveți altă întrebare, sunt aici.',
    unsure:
      'Nu sunt sigur că am răspunsul potrivit. Puteți reformula, lăsa e-mailul sau telefonul dvs. ori vorbi cu o persoană.',
    apology: 'Ne pare rău, ceva nu a funcționat la noi. Vă rugăm să încercați din nou imediat.',
    holding: 'Vă mulțumim pentru mesaj. Un coleg vă va răspunde aici cât mai curând posibil.',
    askBack: 'V-ați referit la una dintre aceste întrebări?',
    contactNoted: 'Mulțumesc, am notat datele dvs. de contact. Echipa noastră vă va contacta.',
    otherLanguage: 'Am acest răspuns doar în altă limbă ({language}):',
    noKnowledge: 'Vă mulțumim pentru mesaj! Lăsați e-mailul sau telefonul dvs., iar echipa noastră vă va contacta.',
    whoAmI: 'Sunt un asistent virtual. Pot răspunde la întrebări sau vă pot pune în legătură cu o persoană.',
    talkToPerson: 'Vorbiți cu o persoană',
  },
  sv: {
    greeting: 'Hej! Hur kan jag hjälpa dig?',
    thanks: 'Varsågod! Kan jag hjälpa till med något mer?',
    goodbye: 'Hej då och ha en fin dag!',
    yes: 'Bra! Vad mer vill du veta?',
    no: 'Okej. Har du en annan fråga är det bara att fråga.',
    unsure:
      'Jag är inte säker på att jag har rätt svar. Du kan formulera om frågan, lämna din e-post eller ditt telefonnummer, eller prata med en person.',
    apology: 'Tyvärr gick något fel hos oss. Försök igen om en stund.',
    holding: 'Tack för ditt meddelande. Någon i vårt team svarar dig här så snart som möjligt.',
    askBack: 'Menade du någon av de här frågorna?',
    contactNoted: 'Tack, jag har noterat dina kontaktuppgifter. Vårt team hör av sig.',
    otherLanguage: 'Jag har bara det här svaret på ett annat språk ({language}):',
    noKnowledge: 'Tack för ditt meddelande! Lämna din e-post eller ditt telefonnummer så hör vårt team av sig.',
    whoAmI: 'Jag är en virtuell assistent. Jag kan svara på frågor eller koppla dig till en person.',
    talkToPerson: 'Prata med en person',
  },
  da: {
    greeting: 'Hej! Hvordan kan jeg hjælpe dig?',
    thanks: 'Det var så lidt! Kan jeg hjælpe med andet?',
    goodbye: 'Farvel og hav en god dag!',
    yes: 'Fint! Hvad vil du ellers vide?',
    no: 'Okay. Har du et andet spørgsmål, så spørg bare.',
    unsure:
      'Jeg er ikke sikker på, at jeg har det rigtige svar. Du kan omformulere spørgsmålet, efterlade din e-mail eller dit telefonnummer eller tale med en person.',
    apology: 'Beklager, noget gik galt hos os. Prøv igen om et øjeblik.',
    holding: 'Tak for din besked. En fra vores team svarer dig her hurtigst muligt.',
    askBack: 'Mente du et af disse spørgsmål?',
    contactNoted: 'Tak, jeg har noteret dine kontaktoplysninger. Vores team vender tilbage til dig.',
    otherLanguage: 'Jeg har kun dette svar på et andet sprog ({language}):',
    noKnowledge:
      'Tak for din besked! Efterlad din e-mail eller dit telefonnummer, så vender vores team tilbage til dig.',
    whoAmI: 'Jeg er en virtuel assistent. Jeg kan besvare spørgsmål eller stille dig om til en person.',
    talkToPerson: 'Tal med en person',
  },
  no: {
    greeting: 'Hei! Hvordan kan jeg hjelpe deg?',
    thanks: 'Bare hyggelig! Er det noe mer jeg kan hjelpe med?',
    goodbye: 'Ha det, og ha en fin dag!',
    yes: 'Flott! Hva mer vil du vite?',
    no: 'Greit. Har du et annet spørsmål, er det bare å spørre.',
    unsure:
      'Jeg er ikke sikker på at jeg har riktig svar. Du kan omformulere spørsmålet, legge igjen e-post eller telefonnummer, eller snakke med en person.',
    apology: 'Beklager, noe gikk galt hos oss. Prøv igjen om et øyeblikk.',
    holding: 'Takk for meldingen. En fra teamet vårt svarer deg her så snart som mulig.',
    askBack: 'Mente du ett av disse spørsmålene?',
    contactNoted: 'Takk, jeg har notert kontaktopplysningene dine. Teamet vårt tar kontakt med deg.',
    otherLanguage: 'Jeg har bare dette svaret på et annet språk ({language}):',
    noKnowledge: 'Takk for meldingen! Legg igjen e-post eller telefonnummer, så tar teamet vårt kontakt.',
    whoAmI: 'Jeg er en virtuell assistent. Jeg kan svare på spørsmål eller sette deg over til en person.',
    talkToPerson: 'Snakk med en person',
  },
  fi: {
    greeting: 'Hei! Miten voin auttaa?',
    thanks: 'Ole hyvä! Voinko auttaa vielä jossakin?',
    goodbye: 'Näkemiin ja hyvää päivänjatkoa!',
    yes: 'Hienoa! Mitä muuta haluaisit tietää?',
    no: 'Selvä. Jos sinulla on muuta kysyttävää, kysy vain.',
    unsure:
      'En ole varma, onko minulla oikea vastaus. Voit muotoilla kysymyksen toisin, jättää sähköpostisi tai puhelinnumerosi tai puhua ihmisen kanssa.',
    apology: 'Valitettavasti meillä meni jotain vikaan. Yritä hetken kuluttua uudelleen.',
    holding: 'Kiitos viestistäsi. Tiimimme jäsen vastaa sinulle täällä mahdollisimman pian.',
    askBack: 'Tarkoititko jotakin näistä kysymyksistä?',
    contactNoted: 'Kiitos, yhteystietosi on merkitty muistiin. Tiimimme ottaa sinuun yhteyttä.',
    otherLanguage: 'Minulla on tämä vastaus vain toisella kielellä ({language}):',
    noKnowledge: 'Kiitos viestistäsi! Jätä sähköpostisi tai puhelinnumerosi, niin tiimimme ottaa sinuun yhteyttä.',
    whoAmI: 'Olen virtuaaliavustaja. Voin vastata kysymyksiin tai yhdistää sinut ihmiselle.',
    talkToPerson: 'Puhu ihmisen kanssa',
  },
  et: {
    greeting: 'Tere! Kuidas saan aidata?',
    thanks: 'Pole tänu väärt! Kas saan veel millegagi aidata?',
    goodbye: 'Nägemist ja head päeva!',
    yes: 'Tore! Mida veel teada soovite?',
    no: 'Hästi. Kui teil on muu küsimus, küsige julgelt.',
    unsure:
      'Ma pole kindel, kas mul on õige vastus. Võite küsida teisiti, jätta oma e-posti või telefoninumbri või rääkida inimesega.',
    apology: 'Vabandust, meie poolel läks midagi valesti. Palun proovige hetke pärast uuesti.',
    holding: 'Täname sõnumi eest. Meie meeskonna liige vastab teile siin esimesel võimalusel.',
    askBack: 'Kas mõtlesite üht neist küsimustest?',
    contactNoted: 'Aitäh, panin teie kontaktandmed kirja. Meie meeskond võtab teiega ühendust.',
    otherLanguage: 'Mul on see vastus ainult teises keeles ({language}):',
    noKnowledge: 'Täname sõnumi eest! Jätke oma e-post või telefoninumber ja meie meeskond võtab teiega ühendust.',
    whoAmI: 'Olen virtuaalne assistent. Saan vastata küsimustele või ühendada teid inimesega.',
    talkToPerson: 'Räägi inimesega',
  },
  lv: {
    greeting: 'Sveiki! Kā varu palīdzēt?',
    thanks: 'Lūdzu! Vai varu palīdzēt vēl ar ko?',
    goodbye: 'Uz redzēšanos un jauku dienu!',
    yes: 'Lieliski! Ko vēl vēlaties uzzināt?',
    no: 'Labi. Ja jums ir cits jautājums, droši jautājiet.',
    unsure:
      'Neesmu drošs, ka man ir pareizā atbilde. Varat pajautāt citiem vārdiem, atstāt savu e-pastu vai tālruņa numuru vai runāt ar cilvēku.',
    apology: 'Atvainojiet, mūsu pusē radās kļūda. Lūdzu, pēc brīža mēģiniet vēlreiz.',
    holding: 'Paldies par ziņu. Mūsu komandas darbinieks jums šeit atbildēs, cik drīz vien iespējams.',
    askBack: 'Vai domājāt kādu no šiem jautājumiem?',
    contactNoted: 'Paldies, esmu pierakstījis jūsu kontaktinformāciju. Mūsu komanda ar jums sazināsies.',
    otherLanguage: 'Šī atbilde man ir tikai citā valodā ({language}):',
    noKnowledge: 'Paldies par ziņu! Atstājiet savu e-pastu vai tālruņa numuru, un mūsu komanda ar jums sazināsies.',
    whoAmI: 'Esmu virtuālais asistents. Varu atbildēt uz jautājumiem vai savienot jūs ar cilvēku.',
    talkToPerson: 'Runāt ar cilvēku',
  },
  lt: {
    greeting: 'Sveiki! Kuo galiu padėti?',
    thanks: 'Prašom! Ar galiu dar kuo nors padėti?',
    goodbye: 'Viso gero ir geros dienos!',
    yes: 'Puiku! Ką dar norėtumėte sužinoti?',
    no: 'Gerai. Jei turite kitą klausimą, tiesiog klauskite.',
    unsure:
      'Nesu tikras, kad turiu tinkamą atsakymą. Galite paklausti kitais žodžiais, palikti savo el. paštą ar telefono numerį arba pasikalbėti su žmogumi.',
    apology: 'Atsiprašome, mūsų pusėje kažkas nepavyko. Po akimirkos bandykite dar kartą.',
    holding: 'Ačiū už žinutę. Mūsų komandos narys čia jums atsakys kuo greičiau.',
    askBack: 'Ar turėjote omenyje vieną iš šių klausimų?',
    contactNoted: 'Ačiū, užsirašiau jūsų kontaktus. Mūsų komanda su jumis susisieks.',
    otherLanguage: 'Šį atsakymą turiu tik kita kalba ({language}):',
    noKnowledge: 'Ačiū už žinutę! Palikite savo el. paštą ar telefono numerį ir mūsų komanda su jumis susisieks.',
    whoAmI: 'Esu virtualus asistentas. Galiu atsakyti į klausimus arba sujungti jus su žmogumi.',
    talkToPerson: 'Kalbėti su žmogumi',
  },
  pl: {
    greeting: 'Dzień dobry! W czym mogę pomóc?',
    thanks: 'Proszę bardzo! Czy mogę jeszcze w czymś pomóc?',
    goodbye: 'Do widzenia i miłego dnia!',
    yes: 'Świetnie! Co jeszcze chcieliby Państwo wiedzieć?',
    no: 'Dobrze. W razie innych pytań proszę śmiało pytać.',
    unsure:
      'Nie mam pewności, czy znam właściwą odpowiedź. Można zapytać innymi słowami, zostawić e-mail lub numer telefonu albo porozmawiać z człowiekiem.',
    apology: 'Przepraszamy, coś poszło nie tak po naszej stronie. Proszę spróbować za chwilę.',
    holding: 'Dziękujemy za wiadomość. Ktoś z naszego zespołu odpowie tutaj najszybciej, jak to możliwe.',
    askBack: 'Czy chodziło o jedno z tych pytań?',
    contactNoted: 'Dziękuję, dane kontaktowe zostały zapisane. Nasz zespół się odezwie.',
    otherLanguage: 'Mam tę odpowiedź tylko w innym języku ({language}):',
    noKnowledge: 'Dziękujemy za wiadomość! Proszę zostawić e-mail lub numer telefonu, a nasz zespół się odezwie.',
    whoAmI: 'Jestem wirtualnym asystentem. Mogę odpowiadać na pytania lub połączyć z człowiekiem.',
    talkToPerson: 'Rozmowa z człowiekiem',
  },
  cs: {
    greeting: 'Dobrý den! Jak vám mohu pomoci?',
    thanks: 'Není zač! Mohu vám ještě s něčím pomoci?',
    goodbye: 'Na shledanou a hezký den!',
    yes: 'Výborně! Co dalšího byste rádi věděli?',
    no: 'Dobře. Máte-li jinou otázku, klidně se zeptejte.',
    unsure:
      'Nejsem si jistý, že znám správnou odpověď. Můžete to říct jinými slovy, zanechat svůj e-mail či telefon nebo si promluvit s člověkem.',
    apology: 'Omlouváme se, na naší straně se něco pokazilo. Zkuste to prosím za chvíli znovu.',
    holding: 'Děkujeme za zprávu. Někdo z našeho týmu vám zde co nejdříve odpoví.',
    askBack: 'Měli jste na mysli některou z těchto otázek?',
    contactNoted: 'Děkuji, vaše kontaktní údaje jsem si poznamenal. Náš tým se vám ozve.',
    otherLanguage: 'Tuto odpověď mám jen v jiném jazyce ({language}):',
    noKnowledge: 'Děkujeme za zprávu! Zanechte svůj e-mail nebo telefon a náš tým se vám ozve.',
    whoAmI: 'Jsem virtuální asistent. Mohu odpovídat na otázky nebo vás spojit s člověkem.',
    talkToPerson: 'Promluvit si s člověkem',
  },
  sk: {
    greeting: 'Dobrý deň! Ako vám môžem pomôcť?',
    thanks: 'Nie je za čo! Môžem vám ešte s niečím pomôcť?',
    goodbye: 'Dovidenia a pekný deň!',
    yes: 'Výborne! Čo ďalšie by ste chceli vedieť?',
    no: 'Dobre. Ak máte inú otázku, pokojne sa opýtajte.',
    unsure:
      'Nie som si istý, že poznám správnu odpoveď. Môžete to povedať inými slovami, nechať svoj e-mail alebo telefón, alebo sa porozprávať s človekom.',
    apology: 'Ospravedlňujeme sa, na našej strane sa niečo pokazilo. Skúste to o chvíľu znova.',
    holding: 'Ďakujeme za správu. Niekto z nášho tímu vám tu čo najskôr odpovie.',
    askBack: 'Mysleli ste niektorú z týchto otázok?',
    contactNoted: 'Ďakujem, vaše kontaktné údaje som si poznačil. Náš tím sa vám ozve.',
    otherLanguage: 'Túto odpoveď mám len v inom jazyku ({language}):',
    noKnowledge: 'Ďakujeme za správu! Nechajte svoj e-mail alebo telefón a náš tím sa vám ozve.',
    whoAmI: 'Som virtuálny asistent. Môžem odpovedať na otázky alebo vás spojiť s človekom.',
    talkToPerson: 'Porozprávať sa s človekom',
  },
  sl: {
    greeting: 'Pozdravljeni! Kako vam lahko pomagam?',
    thanks: 'Ni za kaj! Vam lahko še kako pomagam?',
    goodbye: 'Nasvidenje in lep dan!',
    yes: 'Odlično! Kaj bi še radi vedeli?',
    no: 'V redu. Če imate drugo vprašanje, kar vprašajte.',
    unsure:
      'Nisem prepričan, da poznam pravi odgovor. Lahko poveste drugače, pustite svoj e-naslov ali telefon ali se pogovorite s človekom.',
    apology: 'Oprostite, na naši strani je šlo nekaj narobe. Poskusite znova čez trenutek.',
    holding: 'Hvala za sporočilo. Nekdo iz naše ekipe vam bo tu odgovoril čim prej.',
    askBack: 'Ste mislili katero od teh vprašanj?',
    contactNoted: 'Hvala, vaše kontaktne podatke sem si zabeležil. Naša ekipa se vam bo oglasila.',
    otherLanguage: 'Ta odgovor imam le v drugem jeziku ({language}):',
    noKnowledge: 'Hvala za sporočilo! Pustite svoj e-naslov ali telefon in naša ekipa se vam bo oglasila.',
    whoAmI: 'Sem virtualni pomočnik. Lahko odgovarjam na vprašanja ali vas povežem s človekom.',
    talkToPerson: 'Pogovor s človekom',
  },
  hr: {
    greeting: 'Dobar dan! Kako vam mogu pomoći?',
    thanks: 'Nema na čemu! Mogu li još nekako pomoći?',
    goodbye: 'Doviđenja i ugodan dan!',
    yes: 'Odlično! Što biste još željeli znati?',
    no: 'U redu. Ako imate drugo pitanje, slobodno pitajte.',
    unsure:
      'Nisam siguran da znam pravi odgovor. Možete reći drugim riječima, ostaviti e-mail ili telefon ili razgovarati s osobom.',
    apology: 'Žao nam je, nešto je pošlo po zlu s naše strane. Pokušajte ponovno za trenutak.',
    holding: 'Hvala na poruci. Netko iz našeg tima odgovorit će vam ovdje što prije.',
    askBack: 'Jeste li mislili na neko od ovih pitanja?',
    contactNoted: 'Hvala, zabilježio sam vaše kontaktne podatke. Naš tim će vam se javiti.',
    otherLanguage: 'Ovaj odgovor imam samo na drugom jeziku ({language}):',
    noKnowledge: 'Hvala na poruci! Ostavite e-mail ili telefon i naš tim će vam se javiti.',
    whoAmI: 'Ja sam virtualni asistent. Mogu odgovarati na pitanja ili vas spojiti s osobom.',
    talkToPerson: 'Razgovor s osobom',
  },
  hu: {
    greeting: 'Jó napot! Miben segíthetek?',
    thanks: 'Szívesen! Segíthetek még valamiben?',
    goodbye: 'Viszontlátásra, szép napot!',
    yes: 'Remek! Mit szeretne még tudni?',
    no: 'Rendben. Ha más kérdése van, csak kérdezzen.',
    unsure:
      'Nem vagyok biztos benne, hogy tudom a helyes választ. Megfogalmazhatja másképp, megadhatja e-mail-címét vagy telefonszámát, vagy beszélhet egy munkatársunkkal.',
    apology: 'Elnézést, nálunk valami hiba történt. Kérjük, próbálja újra egy pillanat múlva.',
    holding: 'Köszönjük üzenetét. Munkatársunk itt válaszol Önnek, amint lehet.',
    askBack: 'Ezek közül gondolt valamelyik kérdésre?',
    contactNoted: 'Köszönöm, feljegyeztem az elérhetőségét. Csapatunk jelentkezni fog.',
    otherLanguage: 'Ez a válasz csak más nyelven van meg ({language}):',
    noKnowledge: 'Köszönjük üzenetét! Adja meg e-mail-címét vagy telefonszámát, és csapatunk jelentkezni fog.',
    whoAmI: 'Virtuális asszisztens vagyok. Kérdésekre válaszolok, vagy kapcsolok egy munkatársat.',
    talkToPerson: 'Beszélek egy munkatárssal',
  },
  tr: {
    greeting: 'Merhaba! Size nasıl yardımcı olabilirim?',
    thanks: 'Rica ederim! Başka bir konuda yardımcı olabilir miyim?',
    goodbye: 'Hoşça kalın, iyi günler!',
    yes: 'Harika! Başka ne öğrenmek istersiniz?',
    no: 'Tamam. Başka bir sorunuz olursa lütfen sorun.',
    unsure:
      'Doğru yanıtı bildiğimden emin değilim. Soruyu başka sözcüklerle sorabilir, e-posta veya telefonunuzu bırakabilir ya da bir kişiyle görüşebilirsiniz.',
    apology: 'Üzgünüz, bizim tarafımızda bir sorun oluştu. Lütfen birazdan tekrar deneyin.',
    holding: 'Mesajınız için teşekkürler. Ekibimizden biri en kısa sürede buradan yanıt verecek.',
    askBack: 'Bu sorulardan birini mi kastettiniz?',
    contactNoted: 'Teşekkürler, iletişim bilgilerinizi not ettim. Ekibimiz size dönecek.',
    otherLanguage: 'Bu yanıt bende yalnızca başka bir dilde var ({language}):',
    noKnowledge: 'Mesajınız için teşekkürler! E-posta veya telefonunuzu bırakın, ekibimiz size dönsün.',
    whoAmI: 'Ben sanal bir asistanım. Soruları yanıtlayabilir veya sizi bir kişiye bağlayabilirim.',
    talkToPerson: 'Bir kişiyle görüş',
  },
  el: {
    greeting: 'Γεια σας! Πώς μπορώ να βοηθήσω;',
    thanks: 'Παρακαλώ! Μπορώ να βοηθήσω σε κάτι άλλο;',
    goodbye: 'Αντίο και καλή σας μέρα!',
    yes: 'Ωραία! Τι άλλο θα θέλατε να μάθετε;',
    no: 'Εντάξει. Αν έχετε άλλη ερώτηση, ρωτήστε με.',
    unsure:
      'Δεν είμαι σίγουρος ότι έχω τη σωστή απάντηση. Μπορείτε να το πείτε αλλιώς, να αφήσετε το e-mail ή το τηλέφωνό σας ή να μιλήσετε με έναν άνθρωπο.',
    apology: 'Λυπούμαστε, κάτι πήγε στραβά από την πλευρά μας. Δοκιμάστε ξανά σε λίγο.',
    holding: 'Ευχαριστούμε για το μήνυμά σας. Κάποιος από την ομάδα μας θα σας απαντήσει εδώ το συντομότερο δυνατό.',
    askBack: 'Εννοείτε κάποια από αυτές τις ερωτήσεις;',
    contactNoted: 'Ευχαριστώ, σημείωσα τα στοιχεία επικοινωνίας σας. Η ομάδα μας θα επικοινωνήσει μαζί σας.',
    otherLanguage: 'Έχω αυτή την απάντηση μόνο σε άλλη γλώσσα ({language}):',
    noKnowledge:
      'Ευχαριστούμε για το μήνυμά σας! Αφήστε το e-mail ή το τηλέφωνό σας και η ομάδα μας θα επικοινωνήσει μαζί σας.',
    whoAmI: 'Είμαι ένας εικονικός βοηθός. Μπορώ να απαντήσω σε ερωτήσεις ή να σας συνδέσω με έναν άνθρωπο.',
    talkToPerson: 'Μιλήστε με έναν άνθρωπο',
  },
  ru: {
    greeting: 'Здравствуйте! Чем я могу помочь?',
    thanks: 'Пожалуйста! Могу ли я помочь чем-то ещё?',
    goodbye: 'До свидания, хорошего дня!',
    yes: 'Отлично! Что ещё вы хотели бы узнать?',
    no: 'Хорошо. Если будет другой вопрос, просто спросите.',
    unsure:
      'Я не уверен, что знаю правильный ответ. Вы можете спросить другими словами, оставить свою почту или телефон либо поговорить с человеком.',
    apology: 'Извините, у нас что-то пошло не так. Пожалуйста, попробуйте ещё раз чуть позже.',
    holding: 'Спасибо за сообщение. Сотрудник нашей команды ответит вам здесь как можно скорее.',
    askBack: 'Вы имели в виду один из этих вопросов?',
    contactNoted: 'Спасибо, я записал ваши контакты. Наша команда свяжется с вами.',
    otherLanguage: 'У меня есть этот ответ только на другом языке ({language}):',
    noKnowledge: 'Спасибо за сообщение! Оставьте свою почту или телефон, и наша команда свяжется с вами.',
    whoAmI: 'Я виртуальный помощник. Могу отвечать на вопросы или соединить вас с человеком.',
    talkToPerson: 'Поговорить с человеком',
  },
  uk: {
    greeting: 'Вітаю! Чим я можу допомогти?',
    thanks: 'Прошу! Чи можу я ще чимось допомогти?',
    goodbye: 'До побачення, гарного дня!',
    yes: 'Чудово! Що ще ви хотіли б дізнатися?',
    no: 'Добре. Якщо буде інше запитання, просто спитайте.',
    unsure:
      'Я не впевнений, що знаю правильну відповідь. Ви можете спитати іншими словами, залишити свою пошту чи телефон або поговорити з людиною.',
    apology: 'Перепрошуємо, у нас щось пішло не так. Будь ласка, спробуйте ще раз за мить.',
    holding: 'Дякуємо за повідомлення. Хтось із нашої команди відповість вам тут якнайшвидше.',
    askBack: 'Ви мали на увазі одне з цих запитань?',
    contactNoted: "Дякую, я записав ваші контакти. Наша команда зв'яжеться з вами.",
    otherLanguage: 'Я маю цю відповідь лише іншою мовою ({language}):',
    noKnowledge: "Дякуємо за повідомлення! Залиште свою пошту чи телефон, і наша команда зв'яжеться з вами.",
    whoAmI: "Я віртуальний помічник. Можу відповідати на запитання або з'єднати вас із людиною.",
    talkToPerson: 'Поговорити з людиною',
  },
  bg: {
    greeting: 'Здравейте! С какво мога да помогна?',
    thanks: 'Моля! Мога ли да помогна с още нещо?',
    goodbye: 'Довиждане и приятен ден!',
    yes: 'Чудесно! Какво още бихте искали да знаете?',
    no: 'Добре. Ако имате друг въпрос, просто попитайте.',
    unsure:
      'Не съм сигурен, че знам верния отговор. Можете да попитате с други думи, да оставите имейл или телефон или да говорите с човек.',
    apology: 'Съжаляваме, нещо се обърка при нас. Моля, опитайте отново след малко.',
    holding: 'Благодарим за съобщението. Член на нашия екип ще ви отговори тук възможно най-скоро.',
    askBack: 'Имахте ли предвид някой от тези въпроси?',
    contactNoted: 'Благодаря, записах данните ви за контакт. Нашият екип ще се свърже с вас.',
    otherLanguage: 'Имам този отговор само на друг език ({language}):',
    noKnowledge: 'Благодарим за съобщението! Оставете имейл или телефон и нашият екип ще се свърже с вас.',
    whoAmI: 'Аз съм виртуален асистент. Мога да отговарям на въпроси или да ви свържа с човек.',
    talkToPerson: 'Разговор с човек',
  },
  sr: {
    greeting: 'Здраво! Како могу да вам помогнем?',
    thanks: 'Нема на чему! Могу ли још нешто да помогнем?',
    goodbye: 'Довиђења и пријатан дан!',
    yes: 'Одлично! Шта бисте још желели да знате?',
    no: 'У реду. Ако имате друго питање, слободно питајте.',
    unsure:
      'Нисам сигуран да знам прави одговор. Можете да кажете другим речима, оставите имејл или телефон или разговарате са особом.',
    apology: 'Жао нам је, нешто је пошло наопако са наше стране. Покушајте поново за тренутак.',
    holding: 'Хвала на поруци. Неко из нашег тима ће вам одговорити овде што пре.',
    askBack: 'Да ли сте мислили на неко од ових питања?',
    contactNoted: 'Хвала, забележио сам ваше контакт податке. Наш тим ће вам се јавити.',
    otherLanguage: 'Овај одговор имам само на другом језику ({language}):',
    noKnowledge: 'Хвала на поруци! Оставите имејл или телефон и наш тим ће вам се јавити.',
    whoAmI: 'Ја сам виртуелни асистент. Могу да одговарам на питања или да вас повежем са особом.',
    talkToPerson: 'Разговор са особом',
  },
  ar: {
    greeting: 'مرحبًا! كيف يمكنني مساعدتك؟',
    thanks: 'على الرحب والسعة! هل يمكنني مساعدتك في شيء آخر؟',
    goodbye: 'مع السلامة، نتمنى لك يومًا سعيدًا!',
    yes: 'رائع! ماذا تود أن تعرف أيضًا؟',
    no: 'حسنًا. إذا كان لديك سؤال آخر فاسأل في أي وقت.',
    unsure:
      'لست متأكدًا من أن لدي الإجابة الصحيحة. يمكنك إعادة صياغة السؤال، أو ترك بريدك الإلكتروني أو رقم هاتفك، أو التحدث مع شخص.',
    apology: 'عذرًا، حدث خطأ من جانبنا. يرجى المحاولة مرة أخرى بعد قليل.',
    holding: 'شكرًا على رسالتك. سيرد عليك أحد أعضاء فريقنا هنا في أقرب وقت ممكن.',
    askBack: 'هل تقصد أحد هذه الأسئلة؟',
    contactNoted: 'شكرًا، لقد سجلت بيانات الاتصال الخاصة بك. سيتواصل معك فريقنا.',
    otherLanguage: 'هذه الإجابة متوفرة لدي بلغة أخرى فقط ({language}):',
    noKnowledge: 'شكرًا على رسالتك! اترك بريدك الإلكتروني أو رقم هاتفك وسيتواصل معك فريقنا.',
    whoAmI: 'أنا مساعد افتراضي. يمكنني الإجابة عن الأسئلة أو تحويلك إلى شخص.',
    talkToPerson: 'التحدث مع شخص',
  },
  fa: {
    greeting: 'سلام! چطور می‌توانم کمک کنم؟',
    thanks: 'خواهش می‌کنم! کمک دیگری از من برمی‌آید؟',
    goodbye: 'خداحافظ، روز خوبی داشته باشید!',
    yes: 'عالی! دیگر چه می‌خواهید بدانید؟',
    no: 'بسیار خب. اگر پرسش دیگری دارید، بپرسید.',
    unsure:
      'مطمئن نیستم پاسخ درست را داشته باشم. می‌توانید پرسش را جور دیگری بیان کنید، ایمیل یا شماره تلفن خود را بگذارید یا با یک نفر صحبت کنید.',
    apology: 'متأسفیم، از طرف ما مشکلی پیش آمد. لطفاً کمی بعد دوباره تلاش کنید.',
    holding: 'از پیام شما سپاسگزاریم. یکی از اعضای تیم ما در اولین فرصت همین‌جا پاسخ می‌دهد.',
    askBack: 'منظورتان یکی از این پرسش‌ها بود؟',
    contactNoted: 'سپاس، اطلاعات تماس شما را یادداشت کردم. تیم ما با شما تماس می‌گیرد.',
    otherLanguage: 'این پاسخ را فقط به زبان دیگری دارم ({language}):',
    noKnowledge: 'از پیام شما سپاسگزاریم! ایمیل یا شماره تلفن خود را بگذارید تا تیم ما با شما تماس بگیرد.',
    whoAmI: 'من یک دستیار مجازی هستم. می‌توانم به پرسش‌ها پاسخ دهم یا شما را به یک نفر وصل کنم.',
    talkToPerson: 'صحبت با یک نفر',
  },
  ur: {
    greeting: 'السلام علیکم! میں آپ کی کیا مدد کر سکتا ہوں؟',
    thanks: 'خوشی ہوئی! کیا میں کسی اور چیز میں مدد کر سکتا ہوں؟',
    goodbye: 'خدا حافظ، آپ کا دن اچھا گزرے!',
    yes: 'بہت خوب! آپ اور کیا جاننا چاہیں گے؟',
    no: 'ٹھیک ہے۔ اگر کوئی اور سوال ہو تو ضرور پوچھیں۔',
    unsure:
      'مجھے یقین نہیں کہ میرے پاس درست جواب ہے۔ آپ سوال دوسرے الفاظ میں پوچھ سکتے ہیں، اپنا ای میل یا فون نمبر چھوڑ سکتے ہیں، یا کسی شخص سے بات کر سکتے ہیں۔',
    apology: 'معذرت، ہماری طرف سے کچھ غلط ہو گیا۔ براہ کرم تھوڑی دیر بعد دوبارہ کوشش کریں۔',
    holding: 'آپ کے پیغام کا شکریہ۔ ہماری ٹیم کا کوئی رکن جلد از جلد یہاں جواب دے گا۔',
    askBack: 'کیا آپ کا مطلب ان میں سے کوئی سوال تھا؟',
    contactNoted: 'شکریہ، میں نے آپ کی رابطہ معلومات نوٹ کر لی ہیں۔ ہماری ٹیم آپ سے رابطہ کرے گی۔',
    otherLanguage: 'میرے پاس یہ جواب صرف دوسری زبان میں ہے ({language}):',
    noKnowledge: 'آپ کے پیغام کا شکریہ! اپنا ای میل یا فون نمبر چھوڑ دیں، ہماری ٹیم آپ سے رابطہ کرے گی۔',
    whoAmI: 'میں ایک ورچوئل اسسٹنٹ ہوں۔ میں سوالوں کے جواب دے سکتا ہوں یا آپ کو کسی شخص سے ملا سکتا ہوں۔',
    talkToPerson: 'کسی شخص سے بات کریں',
  },
  he: {
    greeting: 'שלום! איך אפשר לעזור?',
    thanks: 'בשמחה! אפשר לעזור בעוד משהו?',
    goodbye: 'להתראות ויום נעים!',
    yes: 'מצוין! מה עוד תרצו לדעת?',
    no: 'בסדר. אם יש שאלה נוספת, פשוט שאלו.',
    unsure: 'אני לא בטוח שיש לי התשובה הנכונה. אפשר לנסח אחרת, להשאיר דוא"ל או מספר טלפון, או לדבר עם נציג.',
    apology: 'מצטערים, משהו השתבש אצלנו. נסו שוב בעוד רגע.',
    holding: 'תודה על ההודעה. מישהו מהצוות שלנו ישיב לכם כאן בהקדם האפשרי.',
    askBack: 'האם התכוונתם לאחת מהשאלות האלה?',
    contactNoted: 'תודה, רשמתי את פרטי הקשר. הצוות שלנו יחזור אליכם.',
    otherLanguage: 'התשובה הזאת קיימת אצלי רק בשפה אחרת ({language}):',
    noKnowledge: 'תודה על ההודעה! השאירו דוא"ל או מספר טלפון והצוות שלנו יחזור אליכם.',
    whoAmI: 'אני עוזר וירטואלי. אני יכול לענות על שאלות או להעביר אתכם לנציג.',
    talkToPerson: 'לדבר עם נציג',
  },
  hi: {
    greeting: 'नमस्ते! मैं आपकी क्या मदद कर सकता हूँ?',
    thanks: 'आपका स्वागत है! क्या मैं किसी और चीज़ में मदद कर सकता हूँ?',
    goodbye: 'अलविदा, आपका दिन शुभ हो!',
    yes: 'बहुत बढ़िया! आप और क्या जानना चाहेंगे?',
    no: 'ठीक है। कोई और सवाल हो तो ज़रूर पूछें।',
    unsure:
      'मुझे यक़ीन नहीं कि मेरे पास सही जवाब है। आप सवाल दूसरे शब्दों में पूछ सकते हैं, अपना ई-मेल या फ़ोन नंबर छोड़ सकते हैं, या किसी व्यक्ति से बात कर सकते हैं।',
    apology: 'क्षमा करें, हमारी ओर से कुछ गड़बड़ हो गई। कृपया थोड़ी देर में फिर कोशिश करें।',
    holding: 'आपके संदेश के लिए धन्यवाद। हमारी टीम का कोई सदस्य जल्द से जल्द यहाँ जवाब देगा।',
    askBack: 'क्या आपका मतलब इनमें से किसी सवाल से था?',
    contactNoted: 'धन्यवाद, मैंने आपका संपर्क विवरण लिख लिया है। हमारी टीम आपसे संपर्क करेगी।',
    otherLanguage: 'मेरे पास यह जवाब केवल दूसरी भाषा में है ({language}):',
    noKnowledge: 'आपके संदेश के लिए धन्यवाद! अपना ई-मेल या फ़ोन नंबर छोड़ दें, हमारी टीम आपसे संपर्क करेगी।',
    whoAmI: 'मैं एक वर्चुअल सहायक हूँ। मैं सवालों के जवाब दे सकता हूँ या आपको किसी व्यक्ति से जोड़ सकता हूँ।',
    talkToPerson: 'किसी व्यक्ति से बात करें',
  },
  id: {
    greeting: 'Halo! Ada yang bisa saya bantu?',
    thanks: 'Sama-sama! Ada lagi yang bisa saya bantu?',
    goodbye: 'Sampai jumpa, semoga hari Anda menyenangkan!',
    yes: 'Bagus! Apa lagi yang ingin Anda ketahui?',
    no: 'Baik. Jika ada pertanyaan lain, silakan tanyakan.',
    unsure:
      'Saya tidak yakin punya jawaban yang tepat. Anda bisa bertanya dengan kata lain, meninggalkan email atau nomor telepon, atau berbicara dengan staf kami.',
    apology: 'Maaf, terjadi kesalahan di pihak kami. Silakan coba lagi sebentar lagi.',
    holding: 'Terima kasih atas pesan Anda. Anggota tim kami akan membalas di sini secepat mungkin.',
    askBack: 'Apakah maksud Anda salah satu dari ini?',
    contactNoted: 'Terima kasih, kontak Anda sudah saya catat. Tim kami akan menghubungi Anda.',
    otherLanguage: 'Saya hanya punya jawaban ini dalam bahasa lain ({language}):',
    noKnowledge:
      'Terima kasih atas pesan Anda! Tinggalkan email atau nomor telepon dan tim kami akan menghubungi Anda.',
    whoAmI: 'Saya asisten virtual. Saya bisa menjawab pertanyaan atau menghubungkan Anda dengan staf kami.',
    talkToPerson: 'Bicara dengan staf',
  },
  ms: {
    greeting: 'Helo! Apa yang boleh saya bantu?',
    thanks: 'Sama-sama! Ada apa-apa lagi yang boleh saya bantu?',
    goodbye: 'Jumpa lagi, semoga hari anda ceria!',
    yes: 'Bagus! Apa lagi yang anda ingin tahu?',
    no: 'Baik. Jika ada soalan lain, sila tanya.',
    unsure:
      'Saya tidak pasti sama ada jawapan saya betul. Anda boleh bertanya dengan cara lain, meninggalkan e-mel atau nombor telefon, atau bercakap dengan kakitangan kami.',
    apology: 'Maaf, ada masalah di pihak kami. Sila cuba lagi sebentar lagi.',
    holding: 'Terima kasih atas mesej anda. Ahli pasukan kami akan membalas di sini secepat mungkin.',
    askBack: 'Adakah anda maksudkan salah satu daripada ini?',
    contactNoted: 'Terima kasih, maklumat hubungan anda telah dicatat. Pasukan kami akan menghubungi anda.',
    otherLanguage: 'Saya hanya ada jawapan ini dalam bahasa lain ({language}):',
    noKnowledge:
      'Terima kasih atas mesej anda! Tinggalkan e-mel atau nombor telefon dan pasukan kami akan menghubungi anda.',
    whoAmI: 'Saya pembantu maya. Saya boleh menjawab soalan atau menghubungkan anda dengan kakitangan kami.',
    talkToPerson: 'Bercakap dengan kakitangan',
  },
  vi: {
    greeting: 'Xin chào! Tôi có thể giúp gì cho bạn?',
    thanks: 'Không có gì! Tôi có thể giúp gì thêm không?',
    goodbye: 'Tạm biệt, chúc bạn một ngày tốt lành!',
    yes: 'Tuyệt! Bạn muốn biết thêm điều gì?',
    no: 'Vâng. Nếu có câu hỏi khác, bạn cứ hỏi nhé.',
    unsure:
      'Tôi không chắc mình có câu trả lời đúng. Bạn có thể hỏi cách khác, để lại email hoặc số điện thoại, hoặc nói chuyện với nhân viên.',
    apology: 'Xin lỗi, đã có lỗi từ phía chúng tôi. Vui lòng thử lại sau giây lát.',
    holding: 'Cảm ơn tin nhắn của bạn. Nhân viên của chúng tôi sẽ trả lời bạn tại đây sớm nhất có thể.',
    askBack: 'Ý bạn là một trong các câu hỏi này?',
    contactNoted: 'Cảm ơn, tôi đã ghi lại thông tin liên hệ của bạn. Đội ngũ của chúng tôi sẽ liên hệ lại.',
    otherLanguage: 'Tôi chỉ có câu trả lời này bằng ngôn ngữ khác ({language}):',
    noKnowledge: 'Cảm ơn tin nhắn của bạn! Hãy để lại email hoặc số điện thoại, đội ngũ của chúng tôi sẽ liên hệ lại.',
    whoAmI: 'Tôi là trợ lý ảo. Tôi có thể trả lời câu hỏi hoặc chuyển bạn đến nhân viên.',
    talkToPerson: 'Nói chuyện với nhân viên',
  },
  th: {
    greeting: 'สวัสดีค่ะ มีอะไรให้ช่วยไหมคะ',
    thanks: 'ยินดีค่ะ มีอะไรให้ช่วยอีกไหมคะ',
    goodbye: 'ลาก่อนค่ะ ขอให้เป็นวันที่ดีนะคะ',
    yes: 'ดีเลยค่ะ อยากทราบเรื่องอะไรอีกไหมคะ',
    no: 'ได้ค่ะ หากมีคำถามอื่น สอบถามได้เลยนะคะ',
    unsure: 'ไม่แน่ใจว่ามีคำตอบที่ถูกต้องหรือไม่ คุณสามารถถามด้วยคำอื่น ฝากอีเมลหรือเบอร์โทรศัพท์ หรือคุยกับเจ้าหน้าที่ได้ค่ะ',
    apology: 'ขออภัยค่ะ เกิดข้อผิดพลาดทางเรา กรุณาลองใหม่อีกครั้งในอีกสักครู่',
    holding: 'ขอบคุณสำหรับข้อความค่ะ ทีมงานของเราจะตอบกลับที่นี่โดยเร็วที่สุด',
    askBack: 'คุณหมายถึงคำถามใดต่อไปนี้หรือไม่คะ',
    contactNoted: 'ขอบคุณค่ะ บันทึกข้อมูลติดต่อของคุณแล้ว ทีมงานของเราจะติดต่อกลับ',
    otherLanguage: 'มีคำตอบนี้เฉพาะในภาษาอื่นเท่านั้นค่ะ ({language}):',
    noKnowledge: 'ขอบคุณสำหรับข้อความค่ะ ฝากอีเมลหรือเบอร์โทรศัพท์ไว้ แล้วทีมงานของเราจะติดต่อกลับ',
    whoAmI: 'ฉันเป็นผู้ช่วยเสมือนจริง ตอบคำถามหรือส่งต่อคุณให้เจ้าหน้าที่ได้ค่ะ',
    talkToPerson: 'คุยกับเจ้าหน้าที่',
  },
  ko: {
    greeting: '안녕하세요! 무엇을 도와드릴까요?',
    thanks: '천만에요! 더 도와드릴 일이 있을까요?',
    goodbye: '안녕히 가세요. 좋은 하루 보내세요!',
    yes: '좋습니다! 더 궁금하신 점이 있나요?',
    no: '알겠습니다. 다른 질문이 있으면 언제든지 말씀해 주세요.',
    unsure:
      '정확한 답을 알고 있는지 확실하지 않습니다. 다르게 질문하시거나, 이메일 또는 전화번호를 남기시거나, 상담원과 대화하실 수 있습니다.',
    apology: '죄송합니다. 저희 쪽에 문제가 발생했습니다. 잠시 후 다시 시도해 주세요.',
    holding: '메시지를 보내 주셔서 감사합니다. 담당자가 가능한 한 빨리 이곳에서 답변드리겠습니다.',
    askBack: '다음 질문 중 하나를 말씀하신 건가요?',
    contactNoted: '감사합니다. 연락처를 기록해 두었습니다. 담당자가 연락드리겠습니다.',
    otherLanguage: '이 답변은 다른 언어로만 제공됩니다 ({language}):',
    noKnowledge: '메시지를 보내 주셔서 감사합니다! 이메일이나 전화번호를 남겨 주시면 담당자가 연락드리겠습니다.',
    whoAmI: '저는 가상 어시스턴트입니다. 질문에 답하거나 상담원에게 연결해 드릴 수 있습니다.',
    talkToPerson: '상담원과 대화하기',
  },
  ja: {
    greeting: 'こんにちは。どのようなご用件でしょうか。',
    thanks: 'どういたしまして。ほかにお手伝いできることはありますか。',
    goodbye: 'さようなら。よい一日をお過ごしください。',
    yes: '承知しました。ほかに知りたいことはありますか。',
    no: 'わかりました。ほかにご質問があればお尋ねください。',
    unsure:
      '正しい答えかどうか確信がありません。別の言い方でお尋ねいただくか、メールアドレスや電話番号を残していただくか、担当者とお話しいただけます。',
    apology: '申し訳ありません。こちらで問題が発生しました。しばらくしてからもう一度お試しください。',
    holding: 'メッセージをありがとうございます。担当者ができるだけ早くこちらで返信いたします。',
    askBack: '次のご質問のことでしょうか。',
    contactNoted: 'ありがとうございます。ご連絡先を控えました。担当者よりご連絡いたします。',
    otherLanguage: 'この回答は別の言語でのみご用意しています（{language}）：',
    noKnowledge:
      'メッセージをありがとうございます。メールアドレスか電話番号を残していただければ、担当者よりご連絡いたします。',
    whoAmI: '私はバーチャルアシスタントです。ご質問にお答えするか、担当者におつなぎします。',
    talkToPerson: '担当者と話す',
  },
  zh: {
    greeting: '您好！请问有什么可以帮您？',
    thanks: '不客气！还有什么可以帮您的吗？',
    goodbye: '再见，祝您生活愉快！',
    yes: '好的！您还想了解什么？',
    no: '好的。如有其他问题，请随时提问。',
    unsure: '我不确定是否有正确的答案。您可以换个说法，留下邮箱或电话，或与人工客服交谈。',
    apology: '很抱歉，我们这边出了点问题。请稍后再试。',
    holding: '感谢您的留言。我们的工作人员会尽快在此回复您。',
    askBack: '您是想问以下问题之一吗？',
    contactNoted: '谢谢，我已记下您的联系方式。我们的团队会与您联系。',
    otherLanguage: '该回答仅有其他语言版本（{language}）：',
    noKnowledge: '感谢您的留言！请留下邮箱或电话，我们的团队会与您联系。',
    whoAmI: '我是虚拟助手，可以回答问题或为您转接人工客服。',
    talkToPerson: '联系人工客服',
  },
  'zh-Hant': {
    greeting: '您好！請問有什麼可以幫您？',
    thanks: '不客氣！還有什麼可以幫您的嗎？',
    goodbye: '再見，祝您有美好的一天！',
    yes: '好的！您還想了解什麼？',
    no: '好的。如有其他問題，請隨時提問。',
    unsure: '我不確定是否有正確的答案。您可以換個說法，留下電子郵件或電話，或與真人客服交談。',
    apology: '很抱歉，我們這邊出了點問題。請稍後再試。',
    holding: '感謝您的留言。我們的工作人員會盡快在此回覆您。',
    askBack: '您是想問以下問題之一嗎？',
    contactNoted: '謝謝，我已記下您的聯絡方式。我們的團隊會與您聯絡。',
    otherLanguage: '此回答僅有其他語言版本（{language}）：',
    noKnowledge: '感謝您的留言！請留下電子郵件或電話，我們的團隊會與您聯絡。',
    whoAmI: '我是虛擬助理，可以回答問題或為您轉接真人客服。',
    talkToPerson: '聯絡真人客服',
  },
};

/** Regions that write Chinese with traditional characters, named or not. */
const TRADITIONAL = /^zh-(?:.*-)?(?:hant|tw|hk|mo)\b/i;

const tableOf = (language: string): Texts | undefined => {
  const key = TRADITIONAL.test(language) ? 'zh-Hant' : baseLanguage(language);
  return Object.hasOwn(TEXTS, key) ? TEXTS[key] : undefined;
};

const ENGLISH = TEXTS.en as Texts; // The table above begins with it.

export const TEXT_LANGUAGES: readonly string[] = Object.keys(TEXTS);

/** False where `text` would have to fall back to English. */
export const hasTexts = (language: string): boolean => tableOf(language) !== undefined;

/** The assistant's own words in a language, else in English. */
export const text = (language: string, key: TextKey): string => (tableOf(language) ?? ENGLISH)[key];

export const holdingText = (language: string): string => text(language, 'holding');
export const apologyText = (language: string): string => text(language, 'apology');

const namers = new Map<string, Intl.DisplayNames>();

/** A language's name in another; a tag without a name (a private one) stands for itself. */
const languageName = (language: string, within: string): string => {
  const namer = namers.get(within) ?? new Intl.DisplayNames([within], { type: 'language' });
  namers.set(within, namer);
  try {
    return namer.of(language) ?? language;
  } catch {
    return language;
  }
};

/** "I only have this answer in another language (English):" */
export const otherLanguageText = (language: string, answerLanguage: string): string => {
  const within = TRADITIONAL.test(language) ? 'zh-Hant' : hasTexts(language) ? baseLanguage(language) : 'en';
  return text(within, 'otherLanguage').replace('{language}', () => languageName(answerLanguage, within));
};
