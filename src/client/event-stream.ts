/**
 * Server-sent events, as far as the API uses them: `data` lines, joined by events; comments are signs of life; ids stand
 * in the data as well. Written here because there is no EventSource in Node 20 nor in Workers, and none takes a token.
 */

export class EventStreamParser {
  /** The line that has begun. */
  #line = "";
  #data: string[] = [];
  /** The last character was a CR: an LF that follows belongs to it. */
  #isAfterReturn = false;

  /** The data of each event that ends in `text`. */
  push(text: string): string[] {
    const ended: string[] = [];
    let start = this.#isAfterReturn && text.startsWith("\n") ? 1 : 0;
    if (text !== "") this.#isAfterReturn = false;
    const ends = /\r\n|\r|\n/g;
    ends.lastIndex = start;
    for (let end = ends.exec(text); end !== null; end = ends.exec(text)) {
      this.#onLine(this.#line + text.slice(start, end.index), ended);
      this.#line = "";
      start = ends.lastIndex;
      this.#isAfterReturn = start === text.length && text.endsWith("\r");
    }
    this.#line += text.slice(start);
    return ended;
  }

  #onLine(line: string, ended: string[]): void {
    if (line === "") {
      if (this.#data.length > 0) ended.push(this.#data.join("\n"));
      this.#data = [];
    } else if (line.startsWith("data:")) this.#data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
  }
}
