/** Buying, paying, sending and returning. */
export const TRADE: Readonly<Record<string, string>> = {
  price:
    'pricy pricey costly afford* budget* cheaper cheapest billig* preiswert preisliste kostenpunkt price* pricing cost costs costing fee fees charge charges tariff* expensive cheap* rate rates how_much preis* kost kosten kostet kostete gebuhr* teuer gunstig* wieviel_kostet wie_viel_kostet wie_teuer prix tarif* cout* coute* combien precio* coste* cuesta* cuestan cuanto tarifa* preco* custa* custo* quanto_custa prezz* costa costano costo quanto prijs* prijzen hoeveel_kost kost tarieven cena* ceny koszt* kosztuje ile cen* kolik_stoji stoji pris priser kostar koster hinta* maksaa цена* цены стоит стоимость стоимост* сколько ціна* коштує вартість скільки fiyat* ucret* ne_kadar kac_para harga* biaya gia_bao_nhieu bao_nhieu 料金 値段 価格 いくら 价格 价钱 多少 费用 多少钱 價格 السعر سعر كم تكلفه مחיר עולה कीमत',
  payment:
    'pay pays paying paid payment* payer bezahl* zahl* zahlung* zahlungsart* bezahlung paiement* paye* regler reglement pago* pagar pagos pagamento* pagare betaal* betal* betaling platnosc* placic zaplacic plat* betala betalning* betaling maksu* оплат* платеж* заплатить odeme* ode bayar pembayaran thanh_toan 支払* 支払い 支払 付款 支付 الدفع תשלום भुगतान',
  card: 'card cards credit_card debit_card mastercard visa kreditkarte* karte carte* tarjeta* cartao cartoes carta_di_credito creditcard creditkaart karta* kort карта карту kart 信用卡 カード クレジットカード',
  transfer:
    'transfer banktransfer uberweisung_bank bank_transfer wire uberweisen virement* transferencia* bonifico overboeking przelew',
  money: 'money reimburs* geld argent dinero dinheiro soldi pieniadz* pengar penge деньги para 钱 お金',
  refund:
    'refund* money_back get_money_back reimburse* ruckerstatt* erstatt* geld_zuruck ruckzahlung rembours* reembols* devolucion_del_dinero rimbors* terugbetal* geld_terug zwrot_pieniedzy aterbetal* возврат_денег iade_para 返金 退款',
  invoice:
    'kassenbon zahlungsbeleg tax_receipt abrechnung* abrechnen invoice* bill bills billing billed receipt* rechnung* quittung* beleg* facture* factura* fatura* recu recus recibo* fattura* fatture ricevut* factuur facturen bon faktur* fakture* rachun* faktura* счет счета чек fatura 請求書 領収書 发票 發票 فاتورة חשבונית',
  installment:
    'spread_the_cost several_months pay_later in_raten monthly_rates finanzier* financ* instalment* installment* monthly_payment* rates raten ratenzahlung* spread mensualit* plazos cuotas prestac* parcela* rate_mensili termijn* raty taksit*',
  giftcard:
    'gift_card gift_cards gift_voucher gift_vouchers gift_certificate gift_certificates gutschein gutscheine geschenkgutschein* geschenkkarte* bon_cadeau cheque_cadeau carte_cadeau tarjeta_regalo cheque_regalo vale_regalo cartao_presente vale_presente buono_regalo carta_regalo cadeaubon* karta_podarunkowa presentkort gavekort подарочн* hediye_karti ギフトカード 礼品卡',
  discount:
    'code codes cheaper_price special_offer* deal deals sonderangebot* angebot angebote aktion* vergunstig* nachlass* lower_price half_price discount* rebate* voucher* coupon* promo* promotion* rabatt* nachlass ermassig* gutscheincode* rabattcode* reduc* remise* descuento* cupon* desconto* cupom sconto sconti korting* kortings* kod_rabatowy znizk* скидк* промокод indirim* 割引 クーポン 优惠 折扣',
  gift: 'gift* present presents geschenk* cadeau* regal* presente* regal* cadeau prezent* present подар* hediye* ギフト プレゼント 礼物 礼品',
  wrap: 'wrap* packaging geschenkpapier einpack* verpack* emball* envolv* embrulh* incart* inpakk*',
  buy: 'buy* bought purchas* kauf* kaufen gekauft achet* compr* comprar acquist* kop* kopen kupi* купить kup* kope satin_al* satin beli 買* 購入 购买 买',
  sell: 'sell sells selling sold sale sales verkauf* vend* vender vendem verkop* sprzeda* sälj* прода*',
  order:
    'purchase_order kaufen_sie gekaufte bestellnummer order orders ordered ordering bestell* bestellung* auftrag* command* pedido* encomenda* ordin* bestelling* zamowi* zamow* beställ* bestall* ordre заказ* замовлен* siparis* pesan* don_hang 注文 订单 訂單 طلب הזמנה',
  delivery:
    'courier mail_it posted despatch* haul spediteur zustell* versendet geliefert anliefer* deliver* shipping ship ships shipped shipment* dispatch postage versand* liefer* verschick* zusend* versenden livraison* livr* expedi* envio* envi* entreg* entrega* reparto spedi* consegn* bezorg* lever* verzend* leveren dostaw* wysyl* doruc* dostav* leverans* levering доставк* доставл* достав* teslimat kargo gonder* kirim pengiriman giao_hang 配送 配達 送料 发货 送货 配送 運送 快递 التوصيل توصيل الشحن משלוח',
  parcel:
    'parcel* package packages packet* paket* sendung* colis paquet* paquete* encomenda pacote* pacco pacchi pakket* paczk* balik* посылк* посилк* paket 包裹 荷物',
  track:
    'track* tracking whereabouts verfolg* sendungsverfolg* sendungsnummer* suivi* suivre rastre* seguimiento rastrear tracciamento volgen sledz* spar* отслед* takip 追跡 追踪 跟踪',
  arrive: 'arriv* ankomm* angekommen ankunft kommt_an arrive* lleg* cheg* arriv* aankom* przyj* doslo приходит придет',
  abroad:
    'abroad international* overseas foreign* countr* worldwide outside ausland* land lander etranger pays extranjero paises pais exterior paises estero paesi buitenland zagranic* utomlands за_границу yurtdisi 海外 国外',
  express:
    'express fast* faster quick* urgent* overnight next_day schnell* eilig* rapide* urgent* rapido* urgente veloce snel* szybk* snabb* срочн* быстр* hizli 快',
  returns:
    'returning retrun* return_label bring_it_back zuruckbringen loswerden hand_back return* send_back send_something_back sent_back give_back giving_back bring_back zuruckgeb* zuruckschick* zurucksend* rucksend* ruckgab* retour* retourn* renvoy* devol* devuelv* devolv* reso restitu* rendere terugsturen retourneren terug_sturen zwrot* zwroc* vraceni* retur* возврат* вернуть повернен* iade* kembali* 返品 退货 退貨 ارجاع החזר*',
  exchange:
    'replace replacement* different_size other_size bigger_one smaller_one another_size andere_grosse anderen_grosse ersatz exchange* swap* switch_size umtausch* tausch* umtauschen echang* cambi* troca* trocar cambio ruil* omruilen wymian* wymieni* vymen* byta обмен* degistir* 交換 换货',
  damage:
    "dent dented scratch* torn leak* smashed shattered not_work doesn't_turn_on stopped_working zerbrochen zerkratzt gerissen undicht defekt mangel mangelhaft reklam* damag* broken broke defect* faulty fault crushed cracked crack does_not_work doesn_t_work doesn't_work beschadig* defekt* kaputt* abime* casse* defectue* roto rota danad* quebrad* danificad* rott* danneggiat* difettos* stuk kapot* beschadigd uszkodz* zepsut* poskozen* trasig* сломан* поврежд* defolu bozuk 壊れ* 破損 坏了 损坏",
  warranty:
    'covered cover gewahr* warrant* guarantee* garant* gewahrleistung* garanzia gwarancj* zaruk* гарант* гаранти* 保証 保修',
  cancel:
    "changed_my_mind by_mistake call_it_off can't_make_it cannot_make_it can't_come cannot_come reschedule* postpone* nicht_kommen nicht_erschein* verhindert verschieb* abbrech* ruckgangig rucktritt stop_my_order cancel* cancle* call_off revoke* terminat* quit unsubscrib* storn* abbestell* kundig* widerruf* absag* annul* resili* anul* baja cancelar* disdir* disdett* opzeg* annuler* afzegg* afmelden anulow* odwola* zrus* avboka* avbestal* avsluta sag_upp sager_upp sager_jag_upp opsig* отмен* скасу* iptal* batal* huy 解約 取消 キャンセル 退订 الغاء ביטול",
  stock:
    'sold-out run_out restock* back_in back_again wieder_da wieder_verfugbar nachbestell* stock available availab* sold_out back_in_stock inventory lager* verfugbar* vorratig ausverkauft lieferbar disponib* rupture agotad* esgotad* disponibil* esaurit* voorraad uitverkocht dostepn* skladem наличи* stok* 在庫 库存 有货',
  pickup:
    'pick_up_myself fetch collection selbst_abholen mitnehmen_im_laden collect pick_up pickup pick_it_up pick_them_up click_and_collect abhol* retrait retirer recog* retirar ritir* afhalen ophalen odbior* odebra* hamta самовывоз',
  size: 'size* sizes sizing fit fits grosse grossen passt taille* pointure talla* tamanho* taglia taglie maat maten rozmiar* velikost* storlek* размер* beden 尺码 サイズ tall small large',
  item: 'item* product* article* goods thing things ware artikel* produkt* produit* producto* produto* prodott* product товар* urun* 商品 产品',
  shop: 'shop shops store stores laden geschaft* filiale* magasin* boutique* tienda* loja* negozi* winkel* sklep* obchod* butik* affar магазин* магазин magaza* dukkan toko 店 店舗 商店',
  loyalty:
    'bonuskarte bonusprogramm kundenkarte stammkunde* frequent regular_customer* loyalty bonus bonus_card points reward* treue* punkte fidelit* fidel* puntos pontos punti spaarpunten',
  company:
    'company companies business* corporate firm firma* firmen* unternehm* gewerbe* entreprise* societe* empresa* aziend* bedrijf* przedsieb* foretag* компани* sirket* 会社 公司 staff',
  employer: 'employer arbeitgeber* employeur* empleador* empregador* datore_di_lavoro werkgever* pracodaw*',
  jobs: 'working_for_you arbeiten_bei apprentice* ausbildung* praktik* internship* join_your_team job jobs hiring vacanc* career* apply work_for_you work_at_your job_opening* stelle stellen stellenangebot* bewerb* karriere emploi* recrut* empleo* trabajar_con vaga* emprego* lavorare_con lavoro vacature* praca pracy jobb вакан* is_ilani 求人 招聘',
  used: 'used old second_hand secondhand gebraucht* altes alten alte occasion usad* usato usati tweedehands uzywan*',
  bike: 'bike* bicycle* cycle e-bike ebike fahrrad* rad rader velo* bicicleta* bici* biciclett* fiets* rower* kolo cykel* велосипед* bisiklet* 自転車 自行车',
  repair:
    'puncture* flat_tyre flat_tire squeak* quietsch* brake brakes bremse bremsen tune_up uberhol* repair* fix fixed fixing service servicing serviced maintenance mend* reparier* reparatur* richten wartung* inspektion* repar* entretien arregl* mantenimiento consert* manuten* aggiust* manutenzione repareren reparatie* napraw* oprav* reparera* ремонт* tamir* 修理 维修 workshop werkstatt',
  tryout:
    'trying_out take_a_spin ausprobier* proberunde test_ride try_out trial_ride test_drive try_before probefahrt* probe_fahren essai essayer prueba probar provar proefrit',
  lease: 'leas* dienstrad renting_scheme bike_scheme',
};
