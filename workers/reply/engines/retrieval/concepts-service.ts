/** Time, place, people, appointments and health. */
export const SERVICE: Readonly<Record<string, string>> = {
  hours:
    "drop_by come_by shut shuts offnet_ihr noch_offen noch_auf noch_da open opens opening closed close closes closing opening_hours opening_times business_hours open_hours geoffnet offen offnet offnungszeit* oeffnungszeit* geoeffnet sprechzeit* schliesst geschlossen habt_ihr_auf ladenschluss horaire* ouvert* ouvre* ouverture heures_d'ouverture ferme fermez fermeture horario* abierto* abren abre abris cerrad* cierra* aberto* abrem fecham fechado* funcionamento orari* aperto aperti aprite apre chiuso chiude* apertura open geopend openingstijd* openingsuren gesloten sluit otwart* otwiera* czynn* godziny_otwarcia otevren* oteviraci oppet* oppnar abent abningstid* apent apningstid* auki aukiolo* открыт* работаете часы_работы график відчинен* графік acik* calisma_saat* kapali buka jam_buka mo_cua gio_mo_cua 営業 営業時間 营业 營業 几点开门 開門 开门 ساعات فتح פתוח* שעות_הפתיחה",
  time: 'when what_time until_when wann bis_wann uhr quand heure heures a_quelle_heure cuando hora horas quando ora ore wanneer laat kiedy godzinach godzina kdy nar hvornar когда коли zaman saat kapan jam bao_gio khi_nao 何時 いつ 几点 什么时候',
  duration:
    'how_long how_many_days how_many_years how_fast wie_lange wie_lang wie_viele_jahre wie_viele_tage wie_schnell dauer dauert dauern lieferdauer lieferzeit take_long combien_de_temps duree duration cuanto_tarda tarda tardan cuanto_tiempo quanto_tempo demora dura durata quanto_ci_vuole hoe_lang duurt duur jak_dlugo trwa jak_dlouho hur_lange hvor_lenge hvor_lange сколько_времени как_долго ne_kadar_surer berapa_lama どのくらい 多久',
  day: 'monday* tuesday* wednesday* thursday* friday* saturday* sunday* weekend* weekday* montag* dienstag* mittwoch* donnerstag* freitag* samstag* sonntag* wochenend* lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miercoles jueves viernes sabado* domingo* segunda terca quarta quinta sexta lunedi martedi mercoledi giovedi venerdi domenica maandag dinsdag woensdag donderdag vrijdag zaterdag zondag',
  today:
    "this_evening this_afternoon heute_abend today tonight heute aujourd'hui ce_soir hoy hoje oggi vandaag dzisiaj dzis dnes idag i_dag сегодня bugun hari_ini 今日 今天",
  place:
    'address* adress* directions located location* find_you get_to_you way_to adresse* anfahrt* finde_ich_sie strasse standort* ou_etes adresse ou_se_trouve ubicacion ubicad* direccion* donde_estan llegar endereco* onde_fica localiza* indirizz* dove_siete adres* adresa var_ligger адрес* находит* alamat dia_chi o_dau 住所 場所 地址 عنوان כתובת',
  where:
    'where wo ou donde onde dove waar gdzie kde var hvor где де nerede di_mana dimana o_dau どこ 哪里 在哪里 哪裡 اين איפה',
  parking:
    'leave_my_car park_my leave_the_car auto_abstellen car_park garage tiefgarage park parking parkplatz* parkplatze parken parkmoglichk* parkhaus stellplatz* abstellen stationn* parcheg* aparca* estacion* estaciona* parcheggi* parkeer* parkeren parkuj* parking* parkov* parkera* парков* otopark 駐車 駐車場 停车',
  car: 'car cars auto autos wagen voiture* coche* carro* macchina samoch* bil машин* araba 車 车',
  contact:
    'reach_you get_hold call_you write_to_you phone_you email_you mail_you anrufen ruckruf* callback* call_me_back contact* reach get_in_touch phone_number telephone hotline call_you help_desk helpdesk kontakt* erreich* telefon* telefonnummer contacter joindre contacto contactar contato contattar* contatt* klantenservice bereik* skontaktowa* связаться телефон* iletisim 連絡 联系 聯絡',
  support:
    'support customer_service customer_care kundendienst kundenservice assistance service_client atencion_al_cliente soporte suporte atendimento assistenza klantenservice pomoc_techniczna поддержк* destek サポート 客服',
  language:
    'language* languages sprache* sprachen spricht sprechen speak speaks langue* idioma* lingu* lingua lingue taal talen jezyk* jazyk* sprak* язык* мова dil 言語 语言 german english french spanish italian turkish polish deutsch englisch turkisch polnisch',
  free: 'free free_of_charge gratis kostenlos* kostenfrei* umsonst versandkostenfrei gratuit* gratis gratuito* gratuita di_prova bezplatn* darmow* бесплатн* безкоштовн* ucretsiz miễn_phí 無料 免费',
  child:
    'child children kid kids daughter son baby toddler kind kinder* kindern sohn tochter enfant* enfants nino* nina* hij* crianc* filho* filha* bambin* figli* kinderen dzieck* dzieci barn дет* ребен* cocuk* 子供 孩子 儿童',
  student:
    'student* schuler* studierende* etudiant* estudiant* alumn* studenti pupil* charit* non-profit* nonprofit* non_profit* ngo verein*',
  appointment:
    'see_someone consult* check_in besuch sprechstundentermin vormerken appointment* appointm* book booking bookings reserve reservation* reserv* schedule slot see_a_doctor termin* termine vereinbar* buch* buchen anmeld* rendez-vous rdv reserver cita* citas turno reservar* consulta marcar agendar appuntament* prenot* afspraak afspraken maken_afspraak wizyt* umowic objednat schuzk* boka* tid запис* записаться прием* randevu* janji_temu dat_lich 予約 预约 預約 موعد תור',
  newpatient:
    'new_to_the_area looking_for_a_doctor suche_einen_arzt suche_einen_hausarzt aufnehmen neuer_patient new_patient* new_patients neupatient* neue_patienten neuer_patient nouveau_patient nouveaux_patients paciente_nuevo nuovi_pazienti',
  patient: 'patient* patienten patienti* paciente* pazient* pacjent*',
  insurance:
    'insur* insurance krankenkass* kasse kassen kassenpatient* versicher* versichert* privatpatient* privat assur* mutuelle seguro* aseguradora* assicura* verzeker* ubezpiecz* pojist* forsakring* страхов* sigorta* 保険 保险 医保',
  prescription:
    'ran_out_of new_tablets verschrieben e-rezept dauerrezept prescription* refill* rezept* folgerezept* verschreib* verordn* ordonnance* receta* ricetta ricette recept* recept recepta recepty рецепт* recete* 処方 处方',
  medicine:
    'medicine* medication* pill pills tablet tablets drug drugs medikament* tablette* arznei* medicament* pastilla* medicamento* remedio* comprimid* farmac* medicijn* lek leki lekarstw* лекарств* ilac* 薬 药',
  sicknote:
    'krank_geschrieben krankgeschrieben off_work arbeitgeber_attest attest* krank_melden sick_note sick_leave sick_certificate medical_certificate krankschreib* krankmeld* krank_schreib* arbeitsunfahig* arret_maladie arret_de_travail baja_medica baja_laboral atestado_medico certificato_di_malattia malattia ziekmelding ziektebriefje zwolnieni* больничн*',
  emergency:
    'life-threatening at_night nachts_an bei_nacht ambulance rettungswagen krankenwagen weekend_duty schmerzen brustschmerz* emergenc* urgent_care on-call notfall* notdienst* bereitschaftsdienst* notarzt* nachts urgence* emergencia* urgencia* emergenza* pronto_soccorso noodgeval spoed* nagl* nocni akut скорая экстренн* acil* darurat 緊急 急诊',
  video:
    'zu_hause_am_computer von_zu_hause_aus telemedicine video_call online_consultation video* videosprechstund* telemedizin online-sprechstund* online_sprechstund* teleconsult* videollamada videochiamata',
  vaccination:
    'immuniz* immunis* booster* geimpft vaccin* vaccine* jab flu_shot shot shots impf* impfung* auffrisch* grippeimpfung* vacun* vacin* vaccinaz* inenting* szczepi* ockovan* прививк* вакцин* asi 予防接種 疫苗',
  flu: 'flu influenza grippe* gripe grip griepprik influensa грипп*',
  travel:
    'flying_to fly_to trip_to fliege_nach fernreise* tropen* thailand afrika africa gelbfieber* yellow_fever malaria travel* trip reise* verreis* abroad_trip voyage* viaj* viag* reizen podroz* cestov* resa путешеств* seyahat 旅行',
  blood:
    'blood blut blutabnahme blutentnahme blutwert* blutbild blut_abnehmen sang prise_de_sang sangre analisis_de_sangre sangue bloed krew krwi krev кров* kan_tahlili 採血 血',
  fasting:
    'fasting fasted empty_stomach nuchtern fruhstuck* a_jeun ayunas jejum digiuno nuchter na_czczo натощак ac_karna',
  result:
    'result* findings befund* laborergebnis* laborwert* ergebnis* resultat* resultado* risultat* uitslag* wynik* vysled* результат* sonuc* 結果 结果',
  referral:
    'orthopad* kardiolog* dermatolog* gynakolog* neurolog* orthopaed* cardiologist* dermatologist* referral* referred uberweis* uberweisung* facharzt specialist* specialiste* derivacion especialista* encaminhamento specialista impegnativa verwijz* skierowan* направлен* sevk',
  checkup:
    'checkup check-up check_up health_check gesundheitscheck* vorsorge* vorsorgeuntersuchung* bilan_de_sante chequeo revision check-up controllo_medico',
  examine: 'examin* screening untersuch* screenen examen examin* exam',
  skin: 'skin skin_cancer haut* hautkrebs* muttermal* mole moles peau piel pele pelle huid skor* кож* cilt',
  heart: 'heart ecg ekg cardio* herz* kardio* coeur corazon coracao cuore hart serc* srdc* сердц* kalp',
  doctor:
    'doctor* physician* arzt arzte arztin* hausarzt* medecin* docteur* medico* medica* doctora dottor* arts huisarts lekarz* lekar* lakare врач* лікар* doktor* 医師 医者 医生',
  female: 'female woman women frau weiblich* femme mujer mulher donna vrouw kobiet* kvinn* женщин*',
  practice:
    'practice clinic praxis klinik* arztpraxis ordination cabinet clinique consultorio clinica* studio_medico ambulatorio praktijk przychodni* ordinac* klinik* клиник* muayenehane 病院 クリニック 诊所',
  wheelchair:
    'rollator stairs stufen treppe* disabled disability gehbehindert* wheelchair* accessib* barrier* barrierefrei* barierefrei rollstuhl* fahrstuhl* aufzug* lift elevator fauteuil ascenseur handicap* silla_de_ruedas ascensor cadeira_de_rodas elevador sedia_a_rotelle ascensore rolstoel* wozek winda',
  bring:
    'bring mitbring* mitnehm* mitzubringen apporter traer llevar trazer levar portare meenemen przyniesc document* unterlagen dokument*',
  waiting:
    'wait* waiting_time queue crowded warten wartezeit* voll attente attendre espera* esperar attesa aspettare wacht* wachttijd* czeka* cekan* vänt* ожидан* ждать bekleme*',
  walkin:
    'unangemeldet einfach_vorbei just_come_in just_drop_in turn_up walk_in walk-in without_appointment without_an_appointment ohne_termin ohne_anmeldung vorbeikomm* spontan* sans_rendez-vous sin_cita sem_marcacao senza_appuntamento zonder_afspraak bez_umawiania drop_by',
  housecall: 'house_call* home_visit* hausbesuch* nach_hause a_domicile a_domicilio huisbezoek wizyta_domowa',
  records:
    'medical_history meine_unterlagen patientenunterlagen record records medical_record* patientenakte* akte akten dossier* historial expediente prontuario cartella_clinica',
  copy: 'copy copies kopie* copie copia* kopi*',
  forgot:
    'forgot forgotten forget lost lose vergess* verlor* verloren nicht_dabei oubli* perdu* olvid* perdi* perdid* esquec* dimentic* pers* vergeten verloren zapomni* zgubi* glomt забыл* потерял* unuttum kaybettim 忘れ* 忘记 忘了 丢了',
  physio: 'physio* krankengymnastik* physiotherap* kinesitherap* kine fisioterap*',
  covid: 'husten fieber cough fever covid* corona* coronavirus pcr schnelltest* korona*',
  test: 'test tests tester teste testen',
  holiday:
    'holiday* vacation* urlaub* ferien betriebsferien vacances vacaciones ferias ferie vakantie* urlop* dovolen* semester отпуск* tatil* 休暇 休み 假期',
  substitute: 'substitut* vertret* vertritt vertretung* replacement_doctor remplacant* sustitut* sostitut* vervang*',
  train: 'train station subway underground metro u-bahn s-bahn bahnhof haltestelle gare estacion estacao stazione tram',
};
