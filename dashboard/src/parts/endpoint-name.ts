/** The host and path of an endpoint, which tell it from others of the same host. Not its query, which may be a secret. */
export const endpointNameOf = (url: string): string => {
  const parsed = URL.parse(url);
  return parsed ? `${parsed.host}${parsed.pathname.replace(/\/$/, '')}` : url;
};
