import { withoutPiledMarks } from '../fold.ts';

/**
 * An e-mail address from the last character before the `@` on. A pattern for the whole address would take more than
 * linear time.
 */
const EMAIL = /[\p{L}\p{N}._%+-]@[\p{L}\p{N}-]{1,63}(?:\.[\p{L}\p{N}-]{1,63}){0,4}\.\p{L}{2,24}/u;
const LONGEST_MAILBOX = 64;
const MAILBOX = /[\p{L}\p{N}._%+-]/u;
/**
 * Seven to fifteen digits with separators. A number without plus and separators needs nine digits, because it may be an
 * order number.
 */
const PHONE = /(?<![\p{L}\p{N}#])(?:\+|00)?\(?\d[\d\s()./-]{5,22}\d(?![\p{L}\p{N}])/u;

type ContactDetails = { email: boolean; phone: boolean };

const looksLikePhone = (text: string): boolean => {
  const found = PHONE.exec(text)?.[0];
  if (!found) return false;
  const digits = found.replace(/\D/g, '').length;
  if (digits < 7 || digits > 15) return false;
  if (/^\d{4}[-./]\d{1,2}[-./]\d{1,2}$|^\d{1,2}[-./]\d{1,2}[-./]\d{4}$/.test(found.trim())) return false;
  return /^(?:\+|00|\(?0)/.test(found) || /[\s().-]/.test(found.trim()) || digits >= 9;
};

const MAX_LENGTH = 2000;
/** The beginning of a message, normalised. NFKC can expand one character to eighteen, so the text is cut again. */
const beginningOf = (message: string): string =>
  withoutPiledMarks(message.slice(0, MAX_LENGTH)).normalize('NFKC').slice(0, MAX_LENGTH);

/** The contact details in a message: an e-mail address or a phone number. Null if there are none. */
export const findContactDetails = (message: string): ContactDetails | null => {
  const text = beginningOf(message);
  const details = { email: text.includes('@') && EMAIL.test(text), phone: looksLikePhone(text) };
  return details.email || details.phone ? details : null;
};

const withoutEmail = (text: string): string => {
  const found = EMAIL.exec(text);
  if (!found) return text;
  const at = text.indexOf('@', found.index);
  let begins = at;
  while (begins > at - LONGEST_MAILBOX && MAILBOX.test(text.charAt(begins - 1))) begins -= 1;
  return `${text.slice(0, begins)} ${text.slice(found.index + found[0].length)}`;
};

/** The message without its e-mail address and phone number. */
export const withoutContactDetails = (message: string): string =>
  withoutEmail(beginningOf(message)).replace(PHONE, ' ');
