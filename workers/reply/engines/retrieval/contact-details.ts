const EMAIL = /[\p{L}\p{N}._%+-]{1,64}@[\p{L}\p{N}-]{1,63}(?:\.[\p{L}\p{N}-]{1,63}){0,4}\.\p{L}{2,24}/u;
/** Seven to fifteen digits as people write a number; an order number (digits alone, no plus, no gaps) needs nine. */
const PHONE = /(?<![\p{L}\p{N}#])(?:\+|00)?\(?\d[\d\s()./-]{5,22}\d(?![\p{L}\p{N}])/u;

export type ContactDetails = { email: boolean; phone: boolean };

const looksLikePhone = (text: string): boolean => {
  const found = PHONE.exec(text)?.[0];
  if (!found) return false;
  const digits = found.replace(/\D/g, '').length;
  if (digits < 7 || digits > 15) return false;
  if (/^\d{4}[-./]\d{1,2}[-./]\d{1,2}$|^\d{1,2}[-./]\d{1,2}[-./]\d{4}$/.test(found.trim())) return false;
  return /^(?:\+|00|\(?0)/.test(found) || /[\s().-]/.test(found.trim()) || digits >= 9;
};

/** Whether a message leaves an e-mail address or a phone number. */
export const findContactDetails = (message: string): ContactDetails | null => {
  const text = message.slice(0, 2000).normalize('NFKC');
  const details = { email: text.includes('@') && EMAIL.test(text), phone: looksLikePhone(text) };
  return details.email || details.phone ? details : null;
};

/** What else the message says. */
export const withoutContactDetails = (message: string): string =>
  message.slice(0, 2000).normalize('NFKC').replace(EMAIL, ' ').replace(PHONE, ' ');
