/** The one style of the docs page. Colours follow the reader's choice of light or dark; nothing moves. */
export const STYLE = `
:root{color-scheme:light dark;--ink:light-dark(#1b1f24,#e3e6ea);--soft:light-dark(#57606a,#9aa4af);
--page:light-dark(#fff,#14171b);--box:light-dark(#f3f5f7,#1d2127);--line:light-dark(#d5dae0,#343b44);
--link:light-dark(#0b57d0,#8ab4f8)}
*{box-sizing:border-box}
html{scroll-padding-top:1rem}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif;display:grid;
grid-template-columns:19rem minmax(0,1fr)}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:1rem;border-right:1px solid var(--line);font-size:.85rem}
nav h2{font-size:.75rem;letter-spacing:.06em;text-transform:uppercase;color:var(--soft);margin:1.1rem 0 .3rem}
nav ul{list-style:none;margin:0;padding:0}
nav li a{display:block;padding:.15rem .3rem;text-decoration:none;overflow-wrap:anywhere}
main{padding:1.5rem 2rem 6rem;max-width:70rem}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-100rem}
.skip:focus{left:1rem;top:1rem;padding:.5rem 1rem;background:var(--page);z-index:1}
h1 small{font-size:1rem;font-weight:400;color:var(--soft)}
section>h2{margin-top:3rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
article{margin:2.2rem 0}
h3{font-size:1.05rem;margin:0 0 .3rem}
h3 a{color:inherit;text-decoration:none}
h3 a:hover{text-decoration:underline}
h3 span,nav span{font:600 .8em ui-monospace,monospace;color:var(--soft)}
h4{margin:1rem 0 .3rem}
code,pre{font:.85rem/1.5 ui-monospace,monospace}
:not(pre)>code{background:var(--box);padding:.1em .3em;border-radius:3px;overflow-wrap:anywhere}
pre{background:var(--box);padding:.7rem .9rem;margin:.3rem 0;border-radius:5px;overflow:auto;max-height:30rem}
pre i{color:var(--soft)}
figure{margin:.8rem 0}
figcaption,caption{font-size:.85rem;color:var(--soft);text-align:left;padding:.3rem 0}
.wide{overflow:auto;margin:.6rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .7rem .35rem 0;border-top:1px solid var(--line);font-weight:400}
thead th{color:var(--soft);border-top:0}
em{color:var(--soft);font-size:.85em}
summary{cursor:pointer;padding:.2rem 0}
:target{background:light-dark(#fff3bf,#3b3413)}
@media (max-width:60rem){body{display:block}nav{position:static;height:auto;border-right:0;border-bottom:1px solid var(--line)}
main{padding:1rem}}
@media print{nav{display:none}body{display:block}}
`;
