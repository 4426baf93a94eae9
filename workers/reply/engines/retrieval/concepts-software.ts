/** Accounts, plans, data and what goes wrong with them. */
export const SOFTWARE: Readonly<Record<string, string>> = {
  what: "what_is what_does who_is_this explain was_ist qu'est-ce_que que_es o_que_e che_cos'e wat_is",
  account:
    'user_account customer_account registration registr* sign_up account accounts profile konto benutzerkonto kundenkonto compte* cuenta* conta account konto аккаунт* учетн* обліков* hesap hesab* akun tai_khoan アカウント 账户 账号 帳號 حساب חשבון',
  login:
    'logging_in cannot_log_in locked_out ausgesperrt passwort_falsch log_in login sign_in signin sign-in logged_in can_t_log_in anmelden_nicht einlogg* einloggen connexion connecter iniciar_sesion entrar acceder accedere inloggen zalogowa* prihlas* logga_in войти вход giris masuk dang_nhap ログイン 登录 登入',
  password:
    'pw passwd passwort_vergessen password* passwort* kennwort* mot_de_passe contrasena* clave senha* palavra-passe wachtwoord* haslo hasla heslo losenord adgangskode passord salasana парол* sifre* kata_sandi mat_khau パスワード 密码 密碼 كلمه_المرور סיסמה pasword*',
  reset: 'reset* zurucksetz* reinitialis* restablec* redefinir reimposta* resetten zresetowa* сброс* sifirla*',
  twofactor:
    'two_factor two-factor 2fa 2-factor 2_factor mfa otp authenticator authentication authentifiz* zwei_faktor zwei-faktor double_authentification doble_factor dois_fatores due_fattori tweestaps*',
  recovery: 'recovery recovery_code* backup_code*',
  phone:
    'phone smartphone iphone android handy mobile_phone telephone_portable movil celular cellulare telefoon telefon_komorkowy mobil',
  app: 'app apps mobile_app application aplicacion* aplicativo* applicazion* apka aplikacj* appli приложени* uygulama* aplikasi アプリ 应用',
  subscription:
    'tier package_plan paket tarifwechsel subscription* subscript* subscrib* membership* plan plans abo abonnement* abos suscripcion* suscrip* assinatur* abbonament* abonament* predplat* prenumeration* подписк* підписк* abonelik* langganan 契約 プラン サブスク 订阅 套餐',
  upgrade:
    'switch_from more_seats umsteigen move_to_a_different upgrad* bigger_plan higher_plan switch_plan hochstuf* wechsel* passer_a mejorar_plan',
  trial:
    'test_it try_out trying free_trial kostenlos_testen kostenlos_ausprobieren gratis_testen test_version before_i_buy before_buying trial* try try_it free_version demo probe* testversion* ausprobier* testen essai* essayer prueba* probar teste_gratis testar prova provare proefperiode proberen uitproberen probn* wyprobow* zkous* prova_gratis пробн* попробовать deneme* coba 試用 お試し 试用',
  month:
    'month* monthly monat* mois mensuel* mes meses mensual* mensal mes mese mensile maand* miesi* mesic* manad* месяц* ay aylik 毎月 月',
  year: 'year* yearly annual* jahr* jahrlich* an ans annee* annuel* ano anos anual* anno anni annual* jaar jaarlijks rok lata roczn* год* yil* 年',
  add: 'add adding hinzufug* ajout* anadir agregar adicion* aggiung* toevoeg* dodac dodawa* pridat добав* ekle* 追加 添加',
  team: 'coworkers teammates colleagues co-workers staff_member* team teammate* colleague* coworker* co-worker* user users member* seat seats kolleg* mitarbeit* benutzer* nutzer* equipe* utilisateur* collegue* equipo* usuario* colega* utent* collegh* gebruiker* uzytkownik* uzivatel* användare* пользовател* kullanici* ユーザー 用户',
  invite: 'invit* einlad* uitnodig* zapros* pozva* bjud* приглас* davet*',
  role: 'read_only view_only viewer viewers who_may who_can admin admins administrator* role roles permission* rights read-only read_only access_right* allowed_to rolle* rollen berechtigung* rechte roles droits permis* rol rechten uprawnien* роль* права yetki*',
  export:
    'export* back_up backup* download_all data_out get_my_data exportier* datenexport exporter exporta* exportar esporta* exporteren eksport* экспорт* disa_aktar エクスポート 导出',
  download:
    'download* herunterlad* runterlad* telecharg* descarg* baixar scaric* pobra* stahnout ladda_ner скача* indir* ダウンロード 下载',
  import:
    'import* migrat* moving_over move_over switch_over importier* datenimport umzieh* importa* importer* impor* импорт*',
  data: 'data daten donnees datos dados dati gegevens dane danych data uppgifter данные данных дані veri* データ 数据',
  spreadsheet: 'csv excel spreadsheet* tabelle* sheet sheets tableur hoja_de_calculo planilha foglio_di_calcolo',
  bank: 'bank banks banking bankkonto bankrekening banque* banco* banca banche bankow* банк* banka 銀行 银行 bank_account bank_feed',
  connect:
    'hook_up plug_in work_with works_with compatible kompatib* anschliess* connect* link linking integrat* sync* verbind* verknupf* anbind* koppel* connecter relier conectar vincular collegar* polacz* pripoj* ansluta подключ* baglan* 連携 连接',
  notworking:
    "broken_connection connection_broken not_loading no_longer_works error errors fehler fehlermeldung problem problems doesn't_load won't_load won't_open fails failing failed not_working stopped_working not_syncing is_broken isn_t_working isn't_working funktioniert_nicht geht_nicht ne_fonctionne_pas no_funciona nao_funciona non_funziona werkt_niet nie_dziala nefunguje funkar_inte не_работает calismiyor 動かない 不能用",
  create:
    'write an_invoice draw_up create make new_invoice erstell* anleg* schreib* cree* creer crear crea* criar crio creare aanmaken maak utworz* wystawi* vytvor* skapa* созда* створ* olustur* buat tao 作成 创建',
  recurring:
    'every_month each_month every_week monthly_invoice repeating jeden_monat immer_wieder recurring repeat* automatic* automatically wiederkehr* automatisch* recurrent* automatiq* recurrente* automatic* ricorrent* terugker* cyklicz*',
  reminder:
    'reminder* overdue dunning nudge* not_paid unpaid mahn* erinner* relance* rappel* recordatorio* lembrete* sollecit* promemoria herinner* przypomn* upomink* напомин* hatirlat*',
  logo: 'logo logos branding design letterhead briefkopf',
  template: 'template* customiz* customis* vorlage* modele* plantilla* modelo* modello sjablo* szablon*',
  currency:
    'currenc* dollar* dollars euro_and pound sterling wahrung* devise* monnaie moneda* divisa* moeda* valut* valuta* walut* men* валют* para_birimi 通貨 货币',
  vat: 'vat sales_tax value_added umsatzsteuer* mehrwertsteuer* ustva mwst tva iva btw vat moms ндс kdv',
  tax: 'tax taxes tax_return tax_office steuer* finanzamt* impot* fisc* impuest* hacienda impost* tasse belasting* podat* dan danov* skatt* налог* подат* vergi* 税 declaration',
  scan: 'scan* photograph* photo picture take_a_photo foto* fotografier* scann* escane* digitaliza* scansion*',
  expense:
    'outlay* costs_booked belege expense* spending ausgabe* auslage* spesen depense* gasto* despesa* spes* uitgave* wydatk* naklad* utgift* расход* gider*',
  offline:
    'no_network without_wifi without_network no_signal on_the_train on_a_plane flugmodus offline without_internet no_internet no_connection without_connection ohne_internet sans_connexion sin_conexion sem_internet senza_internet zonder_internet',
  developer:
    'api rest developer* programmatic* interface_for entwickler* schnittstelle* developpeur* desarrollador* desenvolvedor* sviluppator* ontwikkel*',
  webhook:
    'get_notified notify notified notification* benachrichtig* webhook* callback* http_notification notified_by_http',
  security:
    'secur* safe safety encrypt* protect* certif* sicher* verschlussel* schutz* securit* segur* protege* sicur* veilig* bezpiecz* bezpec* saker* безопас* guvenli* 安全 セキュリティ',
  server:
    'server* data_centre* data_center* hosted hosting stored storage rechenzentr* gespeichert serveur* heberg* servidor* almacen* armazen* server archiviat* opgeslagen serwer*',
  europe: 'europe* eu europa* europeo* ue',
  privacy:
    'law laws legal compliance compliant comply complies gdpr dsgvo rgpd avg data_protection privacy dpa data_processing personal_data datenschutz* protection_des_donnees proteccion_de_datos protecao_de_dados lgpd protezione_dei_dati ochrona_danych rodo',
  delete:
    'delet* erase* remov* close_my_account close_account wipe account_gone losch* entfern* supprim* efface* elimin* borr* apag* exclu* cancell* verwijder* usun* smaz* zrusit_ucet radera* slet удал* видал* sil* hapus xoa 削除 删除 刪除 حذف מחק* मिटा*',
  outage:
    'not_reachable unreachable is_it_down server_down nicht_erreichbar outage* is_down service_down site_down status incident* not_loading down storung* ausfall* ausgefall* panne* caido interrup* caiu guasto storing* awari* výpadek сбой',
  slow: 'hang hangs hanging freeze* frozen sluggish hangt ruckelt ewig slow* lag laggy lags take_forever takes_forever takes_ages langsam* lent* lento* lenta langzaam* traag woln* pomal* långsam* медлен* yavas* 遅い 慢',
  newsletter:
    "your_mails your_emails advertising advertisement* werbung spam newsletter* marketing_mail* marketing_email* mailing* rundbrief werbemail* promotional_email* bulletin_d'information boletin* infolettre",
  stop: 'stop stopping end ends opt_out quit halt beend* aufhor* arret* parar dejar_de smettere stoppen zatrzyma* sluta прекрат*',
  change:
    'change* changing edit* update* modif* switch move_to ander* aender* anpass* aktualis* chang* cambiar* alter* mudar modific* wijzig* aanpass* zmien* zmian* zmen* andra* измен* змін* degis* ubah doi 変更 更改 修改',
  accountant:
    'accountant* bookkeeper* tax_adviser tax_advisor tax_consultant steuerberater* buchhalter* comptable* expert-comptable contador* asesor_fiscal gestor contabilista commercialista boekhouder* ksiegow* ucetn* revisor бухгалтер* muhasebeci',
  access: 'access* zugriff* zugang* acces* acceso* acesso* access* toegang* dostep* pristup* доступ* erisim*',
  keep: 'storage_period retention_period how_long_stored after_i_leave after_cancellation kept keep retention retain* archiv* stored_after aufbewahr* aufgehoben conserv* conservation bewaar* przechow*',
  file: 'file files documents document dokumente fichier* archivo* ficheiro* arquivo* bestand* plik*',
  website: 'website webpage page pages site webseite* seite seiten pagina* strona',
};
