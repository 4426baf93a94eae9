import { invalid } from '../platform/errors.ts';
import { checkEndpoint, type GuardOptions } from './address-guard.ts';

/** Messages for refused URLs, by reason. */
const MESSAGES: Record<string, string> = {
  not_a_url: 'must be an absolute URL',
  too_long: 'must be at most 2,048 characters',
  not_https: 'must begin with https://',
  userinfo: 'must not carry a user name or password',
  port: 'must use port 443, 80, or one of 1024 and above',
  private_address: 'must not lead to a private or reserved address',
};

/**
 * Checks a URL before it is saved, and throws 422 for `field` if the address guard refuses the URL. A name that does not
 * resolve now is accepted, because it may resolve later and each request checks the address again.
 */
export const requirePublicUrl = async (url: string, guard: GuardOptions, field: string): Promise<void> => {
  const checked = await checkEndpoint(url, guard);
  if (!checked.ok && checked.reason !== 'unresolved') {
    throw invalid(field, checked.reason, MESSAGES[checked.reason] ?? 'is refused');
  }
};
