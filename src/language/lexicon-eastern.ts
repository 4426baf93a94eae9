import type { LexiconEntry } from './lexicon-entry.ts';

export const EASTERN: Record<string, LexiconEntry> = {
  tr: {
    greeting: 'merhaba|selam|günaydın|iyi günler|iyi akşamlar|selamlar|selamün aleyküm|merhabalar|tünaydın|slm|mrb|alo',
    thanks:
      'teşekkürler|teşekkür ederim|çok teşekkürler|sağ ol|sağ olun|sağol|tşk|çok teşekkür ederim|eyvallah|teşekkür ederiz',
    goodbye: 'hoşça kal|hoşçakalın|güle güle|görüşürüz|iyi geceler|görüşmek üzere|kendine iyi bak|hoşçakal|bay bay',
    yes: 'evet|tabii|tabi|olur|elbette|evet lütfen|tamam|doğru|aynen|peki|kesinlikle|harika|süper|iyi|tabii ki',
    no: 'hayır|yok|hayır teşekkürler|henüz değil|olmaz|şimdi değil|gerek yok|istemiyorum',
    common:
      'ben|sen|biz|siz|onlar|bu|şu|ne|zaman|nerede|nereden|nasıl|neden|niçin|kim|hangi|kaç|kadar|var|mı|mi|mu|mü|musunuz|misiniz|değil|için|ile|ve|veya|ama|bir|benim|sizin|lütfen|istiyorum|istiyoruz|gerekiyor|lazım|yapabilir|miyim|olarak|daha|çok|bana|bugün|yardım|açık|ediyor|yapmak|almak|siparişim|fiyat|nedir|acaba|bunu|sizde|merak',
  },
  el: {
    greeting: 'γεια|γεια σας|γεια σου|καλημέρα|καλησπέρα|χαίρετε|καλό απόγευμα|γειά|καλώς σας βρήκα',
    thanks: 'ευχαριστώ|ευχαριστώ πολύ|σας ευχαριστώ|σε ευχαριστώ|ευχαριστούμε|χίλια ευχαριστώ',
    goodbye: 'αντίο|τα λέμε|καληνύχτα|καλή συνέχεια|εις το επανιδείν|καλό βράδυ|καλή σας μέρα|γεια χαρά',
    yes: 'ναι|βέβαια|βεβαίως|φυσικά|ναι παρακαλώ|εντάξει|σωστά|ακριβώς|οκ|τέλεια|σίγουρα|μάλιστα|ωραία',
    no: 'όχι|όχι ευχαριστώ|όχι ακόμα|καθόλου|όχι τώρα|μπα',
    common:
      'είναι|τι|πότε|πού|πώς|γιατί|ποιος|ποια|ποιο|πόσο|πόσα|κοστίζει|μπορώ|μπορείτε|θέλω|θα|ήθελα|πρέπει|μου|σας|το|τα|τη|την|τον|η|ο|οι|και|ή|δεν|με|για|από|στο|στη|στην|ένα|μια|έχω|έχετε|παρακαλώ|βοήθεια|σήμερα|να|που|πως|υπάρχει|κάνω',
  },
  ru: {
    greeting:
      'привет|здравствуйте|здравствуй|добрый день|доброе утро|добрый вечер|приветствую|хай|приветик|здрасте|доброго времени суток|доброго утра|доброго вечера',
    thanks:
      'спасибо|большое спасибо|спасибо большое|благодарю|спс|спасибо за помощь|огромное спасибо|спасибки|благодарю вас',
    goodbye:
      'до свидания|пока|до встречи|всего доброго|хорошего дня|хорошего вечера|спокойной ночи|доброй ночи|всего хорошего|прощайте|до завтра|удачи',
    yes: 'да|конечно|ага|угу|да пожалуйста|хорошо|ладно|точно|верно|ок|окей|отлично|разумеется|согласен|согласна|понятно|именно',
    no: 'нет|нет спасибо|пока нет|не надо|неа|совсем нет|не сейчас|не нужно',
    common:
      'я|ты|он|она|мы|вы|они|что|когда|где|как|почему|кто|какой|какая|какие|сколько|стоит|можно|могу|может|можете|хочу|хотел|бы|нужно|надо|мой|моя|мои|ваш|ваша|ваши|это|этот|и|или|не|с|в|на|до|от|для|по|у|вас|меня|мне|есть|ли|пожалуйста|помощь|сегодня|но|тоже|уже|если|чтобы|работаете|за|из|какое|куда|ещё|только|подскажите',
  },
  uk: {
    greeting:
      'привіт|вітаю|добрий день|доброго дня|добрий ранок|доброго ранку|добрий вечір|здрастуйте|доброго вечора|добридень|вітання|здоровенькі були',
    thanks: 'дякую|щиро дякую|дуже дякую|дяка|спасибі|дякую за допомогу|красно дякую|дякую вам',
    goodbye:
      'до побачення|бувай|бувайте|до зустрічі|гарного дня|гарного вечора|на добраніч|доброї ночі|всього найкращого|до завтра|па-па',
    yes: 'так|звичайно|авжеж|ага|так будь ласка|добре|гаразд|точно|вірно|ок|звісно|чудово|згоден|згодна|зрозуміло',
    no: 'ні|ні дякую|ще ні|не треба|поки ні|зовсім ні|не зараз|не потрібно',
    common:
      'я|ти|він|вона|ми|ви|вони|що|коли|де|як|чому|хто|який|яка|які|яке|скільки|коштує|можна|можу|може|можете|хочу|хотів|хотіла|потрібно|треба|мій|моя|мої|ваш|ваша|ваші|це|цей|і|й|та|або|чи|не|з|в|у|на|до|від|для|по|вас|мене|мені|є|будь|ласка|допомога|сьогодні|але|також|вже|якщо|щоб|працюєте|за|із|куди|ще|тільки|підкажіть',
  },
  be: {
    greeting: 'прывітанне|добры дзень|добрай раніцы|вітаю|добры вечар|здароў',
    thanks: 'дзякуй|вялікі дзякуй|шчыра дзякую|дзякую',
    goodbye: 'да пабачэння|бывай|бывайце|да сустрэчы|дабранач',
    yes: 'так|вядома|добра|ага|канечне|зразумела',
    no: 'не|не дзякуй|яшчэ не|не трэба',
    common:
      'што|калі|дзе|як|чаму|хто|які|якая|колькі|каштуе|можна|магу|хачу|трэба|мой|мая|ваш|гэта|і|або|ці|з|у|на|да|для|вас|мяне|мне|ёсць|калі ласка|сёння|але|яшчэ|працуеце',
  },
  bg: {
    greeting: 'здравей|здравейте|добър ден|добро утро|добър вечер|привет|здрасти|хей|ало',
    thanks: 'благодаря|благодаря ви|много благодаря|мерси|благодаря много|хиляди благодарности',
    goodbye: 'довиждане|чао|лека нощ|приятен ден|до скоро|всичко хубаво|лека вечер|хубав ден',
    yes: 'да|разбира се|добре|точно|да моля|окей|ок|естествено|вярно|супер|ясно|чудесно|става',
    no: 'не|не благодаря|още не|изобщо не|не сега|няма нужда',
    common:
      'аз|ти|той|тя|ние|вие|те|какво|кога|къде|как|защо|кой|коя|кои|какъв|каква|какви|колко|струва|мога|може|можете|искам|бих|трябва|моят|моя|моята|вашият|вашата|вашите|това|този|и|или|не|с|със|в|във|на|до|от|за|по|при|вас|мен|ми|имам|имате|има|ли|моля|помощ|днес|но|също|вече|ако|съм|сте|е|са|ще|да|къде|работите|нещо|няма|където|поръчка|доставката|поръчката',
  },
  sr: {
    greeting:
      'здраво|добар дан|добро јутро|добро вече|поздрав|ћао|zdravo|dobar dan|dobro jutro|dobro veče|ćao|cao|pozdrav',
    thanks: 'хвала|хвала лепо|хвала вам|пуно хвала|много хвала|hvala|hvala lepo|hvala vam|puno hvala|mnogo hvala',
    goodbye: 'довиђења|видимо се|лаку ноћ|пријатан дан|збогом|doviđenja|vidimo se|laku noć|prijatan dan|zbogom',
    yes: 'да|наравно|важи|у реду|тачно|свакако|може|da|naravno|važi|u redu|tačno|svakako|može|dobro|добро|super',
    no: 'не|не хвала|још не|никако|не сада|ne|ne hvala|još ne|nikako|ne sada|uopšte ne',
    common:
      'ја|ти|он|она|ми|ви|је|су|сам|сте|шта|када|где|како|зашто|ко|који|која|које|какав|колико|кошта|могу|може|можете|желим|хтео|бих|морам|мој|моја|моје|ваш|ваша|ваше|то|и|или|не|са|у|на|до|од|за|о|по|се|имам|имате|има|молим|треба|помоћ|данас|али|такође|већ|јер|ако|нешто|код|вам|ли|šta|gde|gdje nije|ko|želeo|hteo|da li|takođe|neko|uvek|ovde|porudžbina|isporuka|trebalo|nedelja|posle',
  },
  ar: {
    greeting: 'مرحبا|السلام عليكم|أهلا|أهلاً|صباح الخير|مساء الخير|اهلا وسهلا|مرحباً|هلا|سلام عليكم|وعليكم السلام',
    thanks: 'شكرا|شكراً|شكرا جزيلا|شكراً لك|شكرا لك|جزاك الله خيرا|ألف شكر|مشكور|تسلم|شكرا لكم',
    goodbye: 'مع السلامة|إلى اللقاء|وداعا|تصبح على خير|باي|في أمان الله|يومك سعيد',
    yes: 'نعم|أجل|ايوه|أيوة|بالطبع|أكيد|حسنا|تمام|نعم من فضلك|موافق|طبعا|صحيح|اي|ممتاز',
    no: 'لا|لا شكرا|ليس بعد|كلا|ليس الآن|لأ|لا أريد',
    common:
      'ما|ماذا|متى|أين|كيف|لماذا|من|هل|كم|سعر|أريد|اريد|يمكن|يمكنني|عندي|لدي|لديكم|عندكم|في|على|إلى|الى|عن|مع|هذا|هذه|أنا|أنت|نحن|هو|هي|التي|الذي|و|أو|ليس|غير|من فضلك|مساعدة|اليوم|لو سمحت|طلبي|طلب|أحتاج|كان|لكن|إذا|ممكن|موعد|ايش|وين|شو|بدي|عايز|ازاي',
  },
  fa: {
    greeting: 'سلام|درود|صبح بخیر|عصر بخیر|شب بخیر|وقت بخیر|سلام علیکم|روز بخیر|سلام وقت بخیر',
    thanks: 'ممنون|متشکرم|مرسی|سپاسگزارم|خیلی ممنون|تشکر|سپاس|ممنونم|دستتون درد نکنه',
    goodbye: 'خداحافظ|خدانگهدار|فعلا|روز خوبی داشته باشید|بدرود|به امید دیدار',
    yes: 'بله|آره|حتما|البته|باشه|درسته|بله لطفا|اره|خوبه|اوکی|چشم|عالی',
    no: 'نه|نخیر|نه ممنون|هنوز نه|خیر|الان نه',
    common:
      'من|تو|شما|ما|آن|این|است|هست|هستم|هستید|چه|چی|کی|کجا|چطور|چگونه|چرا|کدام|چند|چقدر|قیمت|می|می‌خواهم|میخوام|میتونم|می‌توانم|می‌شود|میشه|دارم|دارید|دارد|را|رو|با|به|از|برای|در|و|یا|نیست|لطفا|کمک|امروز|که|تا|هم|اگر|سفارش|نمی|کنم|کنید|باید|شده|خواستم|هزینه|چه‌زمانی',
  },
  ur: {
    greeting: 'السلام علیکم|سلام|آداب|صبح بخیر|ہیلو|خوش آمدید|اسلام علیکم',
    thanks: 'شکریہ|بہت شکریہ|آپ کا شکریہ|مہربانی|جزاک اللہ|بہت بہت شکریہ',
    goodbye: 'خدا حافظ|اللہ حافظ|پھر ملیں گے|شب بخیر',
    yes: 'جی|ہاں|جی ہاں|بالکل|ٹھیک ہے|ضرور|اچھا|درست',
    no: 'نہیں|جی نہیں|نہیں شکریہ|ابھی نہیں|بالکل نہیں',
    common:
      'میں|آپ|ہم|وہ|یہ|ہے|ہیں|ہوں|تھا|کیا|کب|کہاں|کیسے|کیوں|کون|کتنا|کتنے|کتنی|قیمت|کر|سکتا|سکتی|سکتے|چاہتا|چاہتی|چاہیے|میرا|میری|میرے|کا|کی|کے|کو|سے|پر|اور|یا|نہیں|براہ|کرم|مدد|آج|لیے|بھی|تو|اگر|لیکن|مجھے|گا|گی|کس|وقت',
  },
  he: {
    greeting: 'שלום|היי|בוקר טוב|ערב טוב|צהריים טובים|הי|אהלן|מה נשמע|שלום לכם|מה קורה',
    thanks: 'תודה|תודה רבה|המון תודה|תודה לך|רוב תודות|תודה לכם|תודה על העזרה',
    goodbye: 'להתראות|ביי|לילה טוב|יום טוב|נתראה|שבוע טוב|ביי ביי|יום נעים',
    yes: 'כן|בטח|כמובן|בסדר|נכון|כן בבקשה|אוקיי|מעולה|ברור|סבבה|אשמח|מצוין',
    no: 'לא|לא תודה|עוד לא|ממש לא|לא עכשיו|אין צורך',
    common:
      'אני|אתה|את|הוא|היא|אנחנו|אתם|מה|מתי|איפה|איך|למה|מי|איזה|איזו|כמה|עולה|אפשר|יכול|יכולה|רוצה|צריך|צריכה|שלי|שלכם|שלך|זה|זאת|של|עם|על|אל|או|יש|אין|לי|לכם|בבקשה|עזרה|היום|אבל|גם|כבר|אם|האם|ההזמנה|פתוחים',
  },
  hi: {
    greeting: 'नमस्ते|नमस्कार|हैलो|हाय|सुप्रभात|शुभ संध्या|प्रणाम|राम राम|हेलो|namaste|namaskar',
    thanks: 'धन्यवाद|शुक्रिया|बहुत धन्यवाद|बहुत बहुत धन्यवाद|आभार|थैंक यू|dhanyavaad|dhanyavad|shukriya|bahut dhanyavad',
    goodbye: 'अलविदा|फिर मिलेंगे|बाय|शुभ रात्रि|बाद में मिलते हैं|alvida|phir milenge',
    yes: 'हाँ|हां|जी|जी हाँ|ठीक है|बिल्कुल|ज़रूर|हाँ जी|अच्छा|सही|haan|theek hai|bilkul|haan ji',
    no: 'नहीं|जी नहीं|नहीं धन्यवाद|अभी नहीं|ना|बिल्कुल नहीं|nahi|nahin|nahi chahiye',
    common:
      'मैं|आप|हम|वह|यह|है|हैं|हूँ|हूं|था|क्या|कब|कहाँ|कैसे|क्यों|कौन|कितना|कितने|कितनी|कीमत|कर|सकता|सकती|सकते|चाहता|चाहिए|मेरा|मेरी|मेरे|का|की|के|को|से|पर|में|और|या|कृपया|मदद|आज|लिए|भी|तो|अगर|लेकिन|मुझे|गा|किस|kya|hai|hain|kab|kaise|kitna|kitne|mujhe|mera|meri|aap|kahan|chahiye|kar|sakta|nahi|ka|ki|ke|ko|mein|aur|hoga|raha|karna|liye|apna|kyu|koi',
  },
  mr: {
    greeting: 'नमस्कार|शुभ सकाळ|शुभ संध्याकाळ|राम राम|हॅलो',
    thanks: 'धन्यवाद|आभारी आहे|खूप धन्यवाद|मनापासून धन्यवाद|खूप खूप आभार',
    goodbye: 'निरोप|पुन्हा भेटू|शुभ रात्री|बाय',
    yes: 'हो|होय|नक्की|ठीक आहे|बरं|बरोबर',
    no: 'नाही|नको|अजून नाही|आता नाही',
    common:
      'मी|तुम्ही|आम्ही|तो|ती|हे|आहे|आहेत|आहात|होते|काय|कधी|कुठे|कसे|कसा|कशी|का|कोण|किती|किंमत|शकतो|शकते|शकता|पाहिजे|हवे|हवी|माझा|माझी|माझे|माझ्या|चा|ची|चे|ला|आणि|किंवा|कृपया|मदत|आज|साठी|पण|जर|मला|तुमचे|तुमच्या|करू|येईल',
  },
  bn: {
    greeting: 'নমস্কার|হ্যালো|হাই|আসসালামু আলাইকুম|শুভ সকাল|সুপ্রভাত',
    thanks: 'ধন্যবাদ|অনেক ধন্যবাদ|আপনাকে ধন্যবাদ',
    goodbye: 'বিদায়|আবার দেখা হবে|শুভ রাত্রি',
    yes: 'হ্যাঁ|জি|ঠিক আছে|অবশ্যই|আচ্ছা',
    no: 'না|না ধন্যবাদ|এখন না|এখনো না',
    common: 'আমি|আপনি|কি|কী|কখন|কোথায়|কিভাবে|কেন|কত|দাম|চাই|পারি|আমার|আপনাদের|এবং',
  },
  id: {
    greeting:
      'halo|hai|selamat pagi|selamat siang|selamat sore|selamat malam|permisi|assalamualaikum|hallo kak|halo kak|pagi|siang|sore|malam|hai kak',
    thanks: 'terima kasih|makasih|terima kasih banyak|makasih ya|trims|thx kak|makasih banyak|terimakasih|makasi',
    goodbye: 'sampai jumpa|selamat tinggal|dadah|sampai nanti|dah|sampai ketemu lagi',
    yes: 'ya|iya|tentu|baik|oke|benar|betul|ya tolong|boleh|siap|mau|sip|setuju|baiklah',
    no: 'tidak|nggak|enggak|tidak terima kasih|belum|bukan|ga|gak|tidak usah|ngga',
    common:
      'saya|aku|kamu|anda|kami|kita|mereka|apa|apakah|kapan|di mana|dimana|bagaimana|gimana|kenapa|mengapa|siapa|yang|mana|berapa|harga|harganya|bisa|bisakah|ingin|mau|perlu|harus|ini|itu|dan|atau|tidak|dengan|untuk|dari|ke|di|pada|ada|tolong|bantu|bantuan|hari|tapi|juga|sudah|kalau|jika|jam|nya|kak|dong|akan|lagi|bagaimana|pesanan|buka|cara|karena|belum',
  },
  ms: {
    greeting: 'helo|hai|selamat pagi|selamat petang|selamat tengah hari|apa khabar|assalamualaikum|salam',
    thanks: 'terima kasih|terima kasih banyak|tq|ribuan terima kasih',
    goodbye: 'jumpa lagi|selamat tinggal|selamat jalan|babai',
    yes: 'ya|baik|betul|boleh|sudah tentu|baiklah|okey|setuju|sudah pasti',
    no: 'tidak|tak|tak nak|tidak terima kasih|belum lagi|taknak|tak payah',
    common:
      'saya|awak|anda|kami|kita|mereka|apa|adakah|bila|bilakah|di mana|bagaimana|kenapa|mengapa|siapa|yang|mana|berapa|berapakah|harga|boleh|bolehkah|ingin|nak|mahu|perlu|mesti|ini|itu|dan|atau|tidak|tak|dengan|untuk|dari|daripada|ke|di|pada|ada|tolong|bantuan|hari|tetapi|juga|sudah|kalau|jika|pukul|macam|ialah|wang|kedai|pesanan|encik|cik|awak|harganya|perlukan|dibuka',
  },
  fil: {
    greeting: 'kumusta|kamusta|magandang umaga|magandang hapon|magandang gabi|magandang araw|musta|mabuhay',
    thanks: 'salamat|maraming salamat|salamat po|maraming salamat po|thank you po',
    goodbye: 'paalam|sige|ingat|hanggang sa muli|babay|ingat po',
    yes: 'oo|opo|sige|sige po|tama|siyempre|oo naman|ok po|pwede',
    no: 'hindi|hindi po|wala|huwag|ayaw|hindi pa|hindi na|ayoko',
    common:
      'ako|ikaw|ka|siya|kami|tayo|kayo|sila|ano|anong|kailan|saan|paano|bakit|sino|alin|magkano|ilan|pwede|puwede|gusto|kailangan|dapat|ang|ng|mga|sa|na|ay|at|o|po|ba|ko|mo|nyo|niyo|namin|natin|may|mayroon|meron|ito|iyan|yung|lang|din|rin|kung|para|tulong|ngayon|pero|naman|bukas|oras|opo',
  },
  vi: {
    greeting:
      'xin chào|chào|chào bạn|alo|chào anh|chào chị|chào em|chào shop|chào buổi sáng|kính chào|chào mọi người|shop ơi',
    thanks: 'cảm ơn|cám ơn|cảm ơn bạn|cảm ơn nhiều|cảm ơn rất nhiều|xin cảm ơn|cảm ơn shop|thank bạn',
    goodbye: 'tạm biệt|hẹn gặp lại|chúc ngủ ngon|chào tạm biệt|bai bai|chúc một ngày tốt lành',
    yes: 'vâng|dạ|có|đúng|được|đúng rồi|tất nhiên|ừ|đồng ý|ok|vâng ạ|dạ vâng|dạ được|chính xác|tốt',
    no: 'không|không cảm ơn|chưa|không cần|không phải|dạ không|chưa đâu|thôi',
    common:
      'tôi|bạn|anh|chị|em|mình|chúng|là|gì|khi|nào|ở|đâu|như|thế|tại|sao|ai|bao|nhiêu|nhiêu tiền|giá|có thể|muốn|cần|phải|của|và|hoặc|với|cho|từ|đến|này|đó|những|các|một|giúp|xin|hôm|nay|nhưng|cũng|đã|nếu|không|được|mấy|giờ|hàng|đơn|làm|thì|ạ|shop|lâu|khách',
  },
  sw: {
    greeting:
      'habari|jambo|hujambo|mambo|shikamoo|habari za asubuhi|habari yako|habari za mchana|salama|habari za jioni|hamjambo',
    thanks: 'asante|asante sana|shukrani|ahsante|nashukuru|asanteni',
    goodbye: 'kwaheri|tutaonana|usiku mwema|kwaherini|baadaye|siku njema',
    yes: 'ndiyo|ndio|sawa|naam|hakika|sawa sawa|bila shaka|kweli',
    no: 'hapana|la|sio|hapana asante|bado|siyo|hapana bado',
    common:
      'mimi|wewe|yeye|sisi|nyinyi|nini|lini|wapi|vipi|jinsi|gani|kwa|kwanini|nani|ngapi|bei|naweza|mnaweza|nataka|ningependa|nahitaji|yangu|wangu|langu|yenu|yako|hii|hiyo|huu|na|au|si|ya|wa|la|za|ni|tafadhali|msaada|leo|lakini|pia|kama|mna|kuna|saa|kupata|kufanya|kwenye|kuhusu|je|hufungua|duka|oda|agizo|ninaweza|wangapi',
  },
  af: {
    greeting: 'hallo|goeiemôre|goeiedag|goeienaand|goeiemiddag|haai|more|middag',
    thanks: 'dankie|baie dankie|baie dankie vir jou hulp|dankie tog|duisend dankies',
    goodbye: 'totsiens|koebaai|lekker dag|goeienag|sien jou|mooi bly',
    yes: 'ja|ja asseblief|natuurlik|seker|reg|goed|presies|maak so|korrek',
    no: 'nee|nee dankie|nog nie|glad nie|nie nou nie',
    common:
      "ek|jy|hy|sy|ons|julle|hulle|is|was|het|wat|wanneer|waar|hoe|hoekom|wie|watter|kan|wil|moet|die|'n|van|my|jou|u|nie|geen|met|vir|op|aan|en|of|daar|hierdie|dit|ook|nog|maar|by|na|om|te|asseblief|mag|hoeveel|sal|hulp|nodig|vandag|word|kry|doen|as|kos|lank|oop",
  },
  th: {
    greeting: 'สวัสดี|สวัสดีครับ|สวัสดีค่ะ|หวัดดี|ดีครับ|ดีค่ะ|ฮัลโหล|อรุณสวัสดิ์|หวัดดีครับ|หวัดดีค่ะ',
    thanks: 'ขอบคุณ|ขอบคุณครับ|ขอบคุณค่ะ|ขอบคุณมาก|ขอบคุณมากครับ|ขอบคุณมากค่ะ|ขอบใจ|ขอบคุณมากๆ',
    goodbye: 'ลาก่อน|บ๊ายบาย|แล้วเจอกัน|ราตรีสวัสดิ์|ไปก่อนนะ|สวัสดีปีใหม่|บาย',
    yes: 'ใช่|ใช่ครับ|ใช่ค่ะ|ได้|ครับ|ค่ะ|ตกลง|โอเค|แน่นอน|ถูกต้อง|ได้ครับ|ได้ค่ะ|เอา',
    no: 'ไม่|ไม่ครับ|ไม่ค่ะ|ไม่ใช่|ยังไม่|ไม่เป็นไร|ไม่ต้อง|ไม่เอา|ไม่เป็นไรครับ|ไม่เป็นไรค่ะ',
    common:
      'อะไร|เมื่อไหร่|ที่ไหน|อย่างไร|ยังไง|ทำไม|ใคร|เท่าไหร่|เท่าไร|ไหม|มั้ย|หรือ|และ|ที่|ของ|คือ|มี|จะ|อยาก|ต้องการ|ผม|ฉัน|คุณ|ช่วย|หน่อย|วันนี้|กี่|โมง|นะ|คะ|ครับ|ค่ะ|ได้',
  },
  ko: {
    greeting: '안녕|안녕하세요|안녕하십니까|여보세요|하이|좋은 아침|좋은 아침이에요|반갑습니다|반가워요|헬로',
    thanks: '감사합니다|고마워요|고맙습니다|고마워|감사해요|정말 감사합니다|땡큐|감사|대단히 감사합니다|감사드립니다',
    goodbye: '안녕히 계세요|안녕히 가세요|잘 가|다음에 봐요|수고하세요|안녕히 주무세요|좋은 하루 되세요|바이|잘 있어요',
    yes: '네|예|응|그래요|그래|맞아요|좋아요|물론이죠|알겠습니다|네 부탁해요|넵|네네|맞습니다|오케이|좋습니다|물론',
    no: '아니요|아니오|아뇨|아니|괜찮아요|아직이요|필요 없어요|아닙니다|싫어요|괜찮습니다|됐어요',
    common:
      '무엇|언제|어디|어떻게|왜|누구|얼마|얼마예요|있나요|있어요|인가요|할|수|제|저|저는|제가|그리고|또는|주세요|도와주세요|오늘|좀|것|거|이거|그|뭐|혹시|하고|싶어요|되나요|하나요|가능한가요',
  },
  ja: {
    greeting:
      'こんにちは|おはよう|おはようございます|こんばんは|やあ|どうも|はじめまして|もしもし|ハロー|お世話になっております|お疲れ様です',
    thanks:
      'ありがとう|ありがとうございます|ありがとうございました|どうもありがとう|どうもありがとうございます|感謝します|サンキュー|助かりました|助かります',
    goodbye: 'さようなら|さよなら|じゃあね|またね|おやすみ|おやすみなさい|失礼します|それでは|バイバイ|また今度',
    yes: 'はい|ええ|うん|そうです|もちろん|お願いします|はいお願いします|わかりました|了解|了解です|いいです|いいですよ|オッケー|そうですね|承知しました',
    no: 'いいえ|いや|違います|結構です|いえ|大丈夫です|まだです|いりません|ううん|ちがいます|けっこうです',
    common:
      '何|いつ|どこ|どう|なぜ|誰|いくら|ですか|ますか|です|ます|ください|この|その|あの|私|僕|から|まで|など|こと|もの|ある|いる|する|できる|できます|したい|たい|の|は|が|を|に|で|と|も|へ|や|か|ね|よ|ん|どの|どれ|くらい|ありますか|て|た|い|し|教え|なり|さ|れ|お|ご',
  },
  zh: {
    greeting: '你好|您好|大家好|早上好|下午好|晚上好|嗨|哈喽|早安|在吗|你好啊|早|在嗎|哈囉|有人吗|請問在嗎|嘿',
    thanks: '谢谢|多谢|谢谢你|谢谢您|非常感谢|感谢|謝謝|謝謝你|多謝|谢了|太感谢了|感謝|謝謝您|非常感謝|万分感谢',
    goodbye: '再见|拜拜|回头见|晚安|再見|明天见|掰掰|下次见|先这样|祝你愉快',
    yes: '是|是的|对|好|好的|可以|当然|没错|行|嗯|對|好的谢谢|沒錯|當然|对的|好啊|没问题|嗯嗯|要',
    no: '不|不是|不用|没有|不用了|不行|还没有|不用谢谢|沒有|不要|不了|不需要|不用了谢谢|还没|不必',
    common:
      '什么|什麼|什么时候|哪里|哪裡|哪儿|怎么|怎麼|怎样|为什么|為什麼|谁|多少|多少钱|吗|嗎|呢|的|了|是|在|有|和|或|我|你|您|们|我们|你们|这|那|这个|请|请问|請問|能|可以|要|想|帮|帮我|今天|吧|啊|几|个|就|都|也|还|会|给|到|把|被|让|我的|你们的|需要',
  },
};
