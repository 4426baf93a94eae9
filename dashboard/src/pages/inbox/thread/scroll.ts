import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';

const NEAR = 80;

const isAtEnd = ({ scrollHeight, scrollTop, clientHeight }: HTMLElement): boolean =>
  scrollHeight - scrollTop - clientHeight < NEAR;

type Held = { first: string | undefined; last: string | undefined; height: number };

/**
 * Holds the scroll position of a conversation: at the end while the reader is there, and where the reader is when older
 * messages come above or new ones below.
 */
export const useHeldScroll = (first: string | undefined, last: string | undefined) => {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const held = useRef<Held | null>(null);
  const atEnd = useRef(true);
  const [hasNew, setHasNew] = useState(false);

  const toEnd = useCallback(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
    setHasNew(false);
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const before = held.current;
    held.current = { first, last, height: element.scrollHeight };
    if (before === null) {
      const line = element.querySelector<HTMLElement>('.thread-line-new');
      if (!line) return toEnd();
      element.scrollTop = line.offsetTop - element.clientHeight / 3;
      atEnd.current = isAtEnd(element);
      return;
    }
    if (before.first !== first) element.scrollTop += element.scrollHeight - before.height;
    else if (before.last !== last) {
      if (atEnd.current) toEnd();
      else setHasNew(true);
    }
  }, [first, last, toEnd]);

  // Messages grow when their events arrive, and the box shrinks when a long reply is written.
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      if (atEnd.current) toEnd();
    });
    for (const element of [box.current, content.current]) if (element) observer.observe(element);
    return () => observer.disconnect();
  }, [toEnd]);

  const onScroll = useCallback((): { nearStart: boolean } => {
    const element = box.current;
    if (!element) return { nearStart: false };
    atEnd.current = isAtEnd(element);
    if (held.current) held.current.height = element.scrollHeight;
    if (atEnd.current) setHasNew(false);
    return { nearStart: element.scrollTop < NEAR * 2 };
  }, []);

  return { box, content, hasNew, toEnd, onScroll };
};
