"""What stands around a value is understood wherever it stands, and a near-wrong neighbour of each kind is not paid."""

import re

import pytest

from verl_trgrpo.judge import judge_answer
from verl_trgrpo.judge.grammar import GRAMMAR, read_condition, read_parts, read_pieces, read_sentence
from verl_trgrpo.judge.spelling import normalize

KINDS = {
    "qualifiers of free constants": ([
        ("f(x)=cx", r"f(x)=cx \text{ for any real number } c"),
        ("f(x)=ax+b", r"f(x)=ax+b \text{ where } a \text{ and } b \text{ are real constants}"),
        ("f(x)=ax+b", r"f(x)=ax+b,\quad a,b\in\mathbb{R}"),
        ("f(x)=ax+b", r"f(x)=ax+b \text{ with } a, b \text{ arbitrary constants}"),
        (r"y=Ce^{x} \text{ for some constant } C", "y=Ce^x"),
        ("y=Ce^{x}", r"y=Ce^x, \text{ where } C \text{ is an arbitrary constant}"),
        ("y=Ce^{x}", r"y=Ce^x \ (C \in \mathbb{R})"), ("y=Ce^{x}", r"y = Ce^x \text{ (C is a constant)}"),
        (r"P(x)=cx^2 \text{ where } c \text{ is any real constant}", "P(x)=cx^2"),
        ("f(x)=kx", r"f(x)=kx \text{ with constant } k"), (r"f(x)=0, f(x)=cx \text{ for some constant } c", "f(x)=cx, f(x)=0"),
        ("f(x)=cx", r"f(x)=cx \text{ for all } x \text{, where } c \text{ is a constant}"),
        ("f(x)=cx", r"f(x)=cx \text{, where } c \text{ is a real constant, for all } x"),
        ("f(x)=c x", r"f(x)=c x\text{ for every }x\in\mathbb{R}"), ("a_n=c2^n", r"a_n=c2^n \text{ for some } c\in\mathbb{R}"),
        ("x=t, y=2t", r"x=t, y=2t \text{ where } t\in\mathbb{R}"), ("(t,2t)", r"(t,2t), t\in\mathbb{R}"),
        ("(t,2t)", r"(t,2t) \text{ for } t\in\mathbb{R}"), ("f(x)=cx", r"f(x)=cx \text{ (}c\text{ is a constant)}"),
        ("f(x)=cx", r"f(x)=cx\;(c\in\mathbb{R})"),
    ], [
        ("f(x)=cx", r"f(x)=cx \text{ for } c>0"), ("f(x)=cx", r"f(x)=cx \text{ where } c=2"),
        ("f(x)=cx", r"f(x)=cx \text{ for some integer } x"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is a nonzero constant}"),
        ("f(x)=cx", r"f(x)=cx \text{ for all nonzero } x"), ("f(x)=cx", r"f(x)=dx+c \text{ for some constant } c"),
        ("f(x)=cx", r"f(x)=cx \text{ or } x^2"), ("f(x)=cx", r"f(x)=cx \text{ for no constant } c"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is not constant}"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is odd}"), ("f(x)=cx", r"f(x)=cx \text{ for odd } c"),
        ("f(x)=x+1", r"f(x)=x+1 \text{ for some real } x"), ("f(x)=cx", r"f(x)=cx \text{ with } c\in[0,1]"),
        ("f(x)=cx", r"f(x)=cx \text{ for all } c\neq0"), ("f(x)=cx", r"f(x)=cx^2 \text{ for some constant } c"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is prime}"),
        ("y=Ce^x", r"y=Ce^{-x}, \text{ where } C \text{ is an arbitrary constant}"),
        ("f(x)=ax+b", r"f(x)=ax+b \text{ where } a \text{ and } b \text{ are equal}"),
    ]),
    "classes of integers": ([
        (r"n\equiv1\pmod6", r"n\equiv7\pmod6"), (r"n \equiv 1 \pmod 2", r"n \text{ is odd}"),
        (r"n \equiv 0 \pmod 2", r"n \text{ even}"), (r"\text{all even } n", "n=2k"),
        (r"\text{all even integers}", r"2k, k\in\mathbb{Z}"), (r"n \text{ is a multiple of } 3", "n=3k"),
        (r"n \text{ is divisible by } 3", r"n\equiv0\pmod3"), (r"3\mid n", "n=3k"),
        (r"n\equiv\pm1\pmod6", r"n\equiv1,5\pmod6"), (r"n\equiv 1 \text{ or } 5\pmod6", r"n\equiv\pm1 \pmod 6"),
        (r"n\equiv1,3\pmod4", r"n \text{ is odd}"), ("n=6k+1", r"n=6m+1, m\in\mathbb{Z}"),
        (r"n=6k+5 \text{ for some integer } k", r"n\equiv-1\pmod 6"), (r"n=4k+3,k\in\mathbb{Z}", r"n=4k-1, k\in\mathbb{Z}"),
        (r"\text{all odd positive integers}", r"\text{all odd positive integers}"),
        (r"\text{odd integers}", r"\text{all odd numbers}"), (r"\text{all multiples of } 4", "n=4k"),
        (r"n\equiv 2 \pmod 3", r"n\equiv 2 \text{ (mod 3)}"), (r"n \text{ odd}", r"n=2k-1, k\in\mathbb{Z}"),
        (r"\text{all prime numbers}", r"n \text{ is prime}"), ("n=2^k", r"\text{all powers of 2}"),
        (r"n\equiv1\pmod6", r"n\equiv1\bmod6"), (r"n\equiv1\pmod6", r"n \equiv 1 \mod 6"),
        (r"n \text{ is even}", r"\text{even }n"), (r"\text{all odd }n", r"\text{all odd values of } n"),
        (r"\text{all odd }n", r"\text{odd } n"), (r"n\text{ is odd}", r"\text{All odd integers } n"),
        (r"\{x|x=4k,k\in \mathbb{Z}\}", r"\{4k \mid k\in\mathbb{Z}\}"),
        (r"x=4k, k\in\mathbb{Z}", r"\{x \mid x=4k, k\in\mathbb{Z}\}"),
    ], [
        (r"n\equiv1\pmod6", "n=6k+2"), (r"n\equiv1\pmod6", "n=3k+1"), (r"n\equiv1\pmod6", "n=6k"),
        (r"n\equiv1\pmod6", "n=6n+1"), (r"\text{all odd } n", r"n \text{ even}"), (r"\text{all odd } n", "n=2k"),
        (r"\text{all odd } n", r"\text{all odd primes}"), (r"\text{all odd } n", r"\text{all } n"), ("n=2^k", "n=3^k"),
        ("n=2^k", "n=2k"), ("n=2^k", r"\text{powers of }4"), ("n=2^k", r"\text{multiples of }2"),
        (r"\text{all primes}", r"\text{all odd primes}"), (r"\text{all odd } n", r"\text{all odd } n \text{ except } 3"),
        (r"n\equiv1\pmod6", r"m\equiv1\pmod6"), (r"n\equiv\pm1\pmod6", r"n\equiv1\pmod6"),
        (r"\text{all odd } n", r"\text{not all odd } n"), (r"\text{all odd } n", r"\text{some odd } n"),
        (r"\text{all odd } n", r"\text{positive odd integers}"), (r"\text{all odd } n", r"n \text{ is not odd}"),
        (r"n\equiv1\pmod 6", "7"), (r"n\equiv1\pmod 6", r"\text{odd } n"), (r"n \text{ odd}", r"n \text{ odd}, n>1"),
        (r"n\equiv1,5\pmod6", r"n\equiv1,4\pmod6"), ("5", "n=6k+5"), ("n=6k+1", r"n=6k+7 \text{ for } k>0"),
        (r"n\equiv1\pmod6", r"n=6k+1 \text{ or } n=6k+2"), ("x=2k+1", "x=2m+1"),
        (r"\{x|x=4k,k\in \mathbb{Z}\}", r"\{2k \mid k\in\mathbb{Z}\}"), (r"\text{odd}", "n=2k+1"), ("n", r"\text{all odd } n"),
    ]),
    "conditions": ([
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"0 \text{ if } n \text{ is even, } 1 \text{ if } n \text{ is odd}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", r"0 \text{ for even } n, 1 \text{ for odd } n"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"0 \text{ when } n \text{ is even and } 1 \text{ when } n \text{ is odd}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", r"0 \text{ if } n \text{ is even; otherwise } 1"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"\begin{cases} 1, & n=2k+1 \\ 0, & n=2k \end{cases}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"\begin{cases} 0 & n=1 \\ 1 & \text{otherwise}\end{cases}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"\begin{cases} 0 & \text{if } n=1 \\ 1 & \text{else}\end{cases}"),
        (r"\begin{cases} x^2 & x<0\\ x & x\ge 0\end{cases}",
         r"\begin{cases} x^2, & \text{for } x<0,\\ x, & \text{for } x\geq 0.\end{cases}"),
        (r"f(n)=\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"f(n)=0 \text{ if } n \text{ is even}, f(n)=1 \text{ if } n \text{ is odd}"),
        (r"n \text{ even}", r"\text{if } n \text{ is even}"), ("x>3", r"\text{if } x>3"), ("x>3", r"\text{when } x>3"),
        (r"f(n)=\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}"),
    ], [
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"1 \text{ if } n \text{ is even, } 0 \text{ if } n \text{ is odd}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", r"0 \text{ if } n \text{ is even}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", "0, 1"),
        ("0,1", r"0 \text{ if } n \text{ is even, } 1 \text{ if } n \text{ is odd}"),
        ("0", r"0 \text{ if } n \text{ is even}"), ("0", r"0 \text{ if } x>0"), ("0", r"0 \text{ otherwise}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"1 \text{ if } n=1, 0 \text{ otherwise}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"0 \text{ if } n=2, 1 \text{ otherwise}"),
        (r"\begin{cases}0 & x<0\\ 1 & x=0 \\ 2 & x>0\end{cases}", r"\begin{cases}0 & x<0\\ 1 & \text{otherwise}\end{cases}"),
        (r"\begin{cases}0 & x<0\\ 1 & x=0 \\ 2 & x>0\end{cases}",
         r"\begin{cases}0 & x<0\\ 1 & \text{otherwise}\\ 2& \text{otherwise}\end{cases}"),
        (r"n \text{ even}", r"\text{unless } n \text{ is even}"), ("x>3", r"\text{if } x<3"),
        (r"\begin{cases} x^2 & x<0\\ x & x\ge 0\end{cases}", r"\begin{cases} x^2 & x\le0\\ x & x> 0\end{cases}"),
        (r"x \text{ if } x>0", "x"),
    ]),
    "numbered parts": ([
        (r"3, \frac12", r"(1) 3 \quad (2) \frac12"), (r"3, \frac12", "(a) 3; (b) 0.5"), (r"(a) 3 (b) \frac12", r"3; \frac12"),
        (r"(1)\ x>2;\ (2)\ x=5", "x>2, x=5"), ("3,4,5", r"\text{(i) } 3, \text{(ii) } 4, \text{(iii) } 5"),
        ("(1) 3; (2) 4", "(a) 3; (b) 4"), ("(1) 3; (2) 4", "1) 3 2) 4"), (r"\text{(a) Yes; (b) No}", r"\text{Yes, No}"),
        (r"3, \frac12", r"\text{Part (a): } 3; \text{ Part (b): } \frac12"), ("(1) a=2; (2) (1,3)", r"(1) 2 \quad (2) (1,3)"),
        ("3,4", r"\text{Question 1: }3, \text{Question 2: }4"), ("(i) 2 (ii) 3", r"(i)\; 2 \\ (ii)\; 3"),
    ], [
        (r"3, \frac12", r"(1) \frac12 \quad (2) 3"), ("(a) 3 (b) 4", "4, 3"), ("(a) 3 (b) 4", "3"), ("(a) 3 (b) 4", "(a) 3"),
        ("(a) 3 (b) 4", "(a) 3 (b) 5"), ("(a) 3 (b) 4", "(b) 3 (a) 4"), ("(a) 3 (b) 4", "(a) 3 (b) 4 (c) 5"),
        ("3,4", "(1) 3 (2) 4 (3) 5"), ("12", "(1)3, (2)4"), ("3", "(1) 3 (2) 3"), ("(3,4)", "(1) 4 (2) 3"),
        (r"\{3,4\}", "(1) 4, (2) 3"), ("6", "(1)3(2)"), ("(a) 3 (b) 4", r"(a) 3 \text{ or } (b) 4"),
    ]),
    "words cut elsewhere, dates": ([
        (r"\text{Player 1}", r"\text{Player }1"), (r"\text{Type II}", r"\text{Type }\text{II}"),
        (r"\text{Monday}", r"\text{Mon}\text{day}"), (r"\text{Team A}", r"\text{Team } A"),
        (r"\text{point }P", r"\text{point P}"), (r"\text{5 March}", r"\text{March 5}"),
        (r"\text{March 5, 2020}", r"\text{5 March 2020}"), (r"\text{March 5th}", r"\text{March }5"),
        (r"\text{Class 3B}", r"\text{Class }3B"), (r"\text{Group }A", r"\text{Group A}"),
    ], [
        (r"\text{Player 1}", r"\text{Player }2"), (r"\text{Type II}", r"\text{Type }III"),
        (r"\text{March 5}", r"\text{March 6}"), (r"\text{March 5}", r"\text{May 5}"), (r"\text{Team A}", r"\text{Team } B"),
        (r"\text{March 15}", r"\text{March }5"), (r"\text{Day 10}", r"\text{Day }1 0 0"), (r"\text{Team A}", "A"),
        ("1", r"\text{Player }1"), (r"\text{March 5, 2020}", r"\text{March 5, 2021}"),
    ]),
    "degrees in a sum": ([
        (r"180-2\alpha", r"180^\circ-2\alpha"), (r"90^\circ+\frac{A}{2}", r"90+\frac A2"),
        (r"\frac{\alpha+\beta}{2}", r"\frac{\alpha+\beta}{2}^\circ"), (r"(180-x)^\circ", r"180^\circ-x"),
        (r"180^\circ-2\alpha", r"\pi-2\alpha"), (r"360^\circ - 3x", r"(360-3x)^\circ"),
        (r"90^\circ-\frac{\alpha}{2}", r"\frac{180^\circ-\alpha}{2}"),
    ], [
        (r"180-2\alpha", r"180^\circ-\alpha"), (r"180^\circ-2\alpha", r"90^\circ-2\alpha"), ("90", r"180^\circ-90^\circ"),
        (r"\sin 30^\circ+x", r"\sin 30+x"), ("90-x", r"90^\circ+x"), (r"180^\circ-2\alpha", r"\pi-\alpha"),
        (r"180-2\alpha", r"\pi-2\alpha"),
    ]),
    "inverse and hyperbolic functions": ([
        (r"\frac12\ln\frac{1+x}{1-x}", r"\operatorname{arctanh}(x)"), (r"\ln(x+\sqrt{x^2-1})", r"\operatorname{arcosh} x"),
        (r"\ln(2+\sqrt3)", r"\cosh^{-1}2"), (r"\frac{\pi}{2}-\arctan x", r"\frac{\pi}{2}-\tan^{-1}x"),
        (r"\frac{1}{\cosh x}", r"\operatorname{sech} x"), (r"\arccos\frac12", r"\operatorname{arcsec}2"),
        (r"\ln(1+\sqrt2)", r"\operatorname{arcsinh}1"), (r"\ln(1+\sqrt2)", r"\sinh^{-1}(1)"),
        (r"\arcsin x", r"\text{arcsin}\, x"), (r"\operatorname{csch}x", r"\frac{1}{\sinh x}"),
        (r"\operatorname{arccosec} 2", r"\csc^{-1} 2"),
    ], [
        (r"\frac12\ln\frac{1+x}{1-x}", r"\tanh x"), (r"\frac12\ln\frac{1+x}{1-x}", r"\arctan x"),
        (r"\ln(x+\sqrt{x^2+1})", r"\operatorname{arcosh} x"), (r"\frac{1}{\cosh x}", r"\operatorname{csch} x"),
        (r"\cosh^{-1}2", r"\frac{1}{\cosh 2}"), (r"\sinh^{-1} x", r"\sinh x"),
    ]),
    "rows, columns and unit vectors": ([
        ("(1,2,3)", r"\begin{pmatrix}1\\2\\3\end{pmatrix}"), ("(1,2,3)", "(1,2,3)^T"),
        (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", "(1,2,3)^T"),
        (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", r"\begin{pmatrix}1&2&3\end{pmatrix}^T"),
        ("(1,2,3)", r"\hat i+2\hat j+3\hat k"), ("(1,2,3)", r"\mathbf{i}+2\mathbf{j}+3\mathbf{k}"),
        (r"2\mathbf{i}-3\mathbf{j}", r"2\hat{\imath}-3\hat{\jmath}"), (r"\begin{bmatrix}1\\2\end{bmatrix}", "[1,2]^T"),
        (r"\langle1,2,3\rangle", "(1,2,3)"), (r"\begin{pmatrix}1\\-2\\0\end{pmatrix}", r"\hat i-2\hat j"), ("[4, 2]", "4, 2"),
        ("[1, 5, 3]", "1, 5, 3"), (r"\vec{v}=(1,2)", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ], [
        ("(1,2,3)", r"\begin{pmatrix}1\\3\\2\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", r"\begin{pmatrix}1&2&3\end{pmatrix}"), ("(1,2,3)", r"\hat i+2\hat j-3\hat k"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T"), ("(1,2,3)", r"\hat i+2\hat j"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "1,2"), ("[1,2]", "1,2"), ("[4,2]", "2,4"),
        ("(1,2)", r"\begin{pmatrix}2&1\end{pmatrix}"), (r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", "(1,2,3,4)"),
    ]),
    "units": ([
        ("50.7", r"50.7\text{ Pa}\cdot\text{s}"), ("50.7", r"50.7\text{ mbar}"), ("3", r"3\text{ knots}"),
        ("5", r"5\text{ MeV}"), ("5", r"5\ \mathrm{T}"), ("5", r"5\text{ Gbps}"), ("5", r"5\text{ horsepower}"),
        ("2.5", r"2.5\text{ kPa}"), ("2", r"2\ \mathrm{mol/L}"), ("3", r"3\text{ dm}^3"), (r"5\text{ kWh}", r"18\text{ MJ}"),
        (r"1\text{ atm}", r"101325\text{ Pa}"), ("7", r"7\text{ mcg}"), ("7", r"7\text{ nautical miles}"),
        ("7", r"7\text{ light years}"), ("7", r"7 \text{ N/m}^2"), ("7", r"7 \text{ hp}"), ("7", r"7\text{ mA}"),
        ("7", r"7\text{ J/K}"), ("7", r"7\text{ rad/s}"),
    ], [
        (r"5\text{ kWh}", r"5\text{ kW}"), (r"5\text{ atm}", r"5\text{ bar}"), ("5", r"5\text{ or so}"),
        ("5", r"5\text{ wrong}"), ("5", r"5\text{ Bob}"), (r"5\text{ dB}", r"5\text{ Hz}"), ("5", r"5\text{ xyz}"),
        ("5", r"5\text{ million bytes}"), (r"5\text{ MB}", r"5\text{ Mb}"), (r"5 \text{ mA}", r"5\text{ MA}"),
    ]),
    "sentences around a word": ([
        (r"\text{Bob}", r"\text{Bob wins}"), (r"\text{Alice}", r"\text{Alice has the winning strategy}"),
        (r"\text{No}", r"\text{No, such a function does not exist}"), (r"\text{No}", r"\text{No, there is no such function}"),
        (r"\text{Yes}", r"\text{Yes, it is possible}"), (r"\text{Yes}", r"\text{Yes, there exists such a function}"),
        (r"\text{diverges}", r"\text{The series is divergent}"), (r"\text{diverges}", r"\text{The integral diverges}"),
        (r"\text{DNE}", r"\text{The limit does not exist.}"), (r"\text{converges}", r"\text{it converges}"),
        (r"\text{ellipse}", r"\text{The curve is an ellipse}"), (r"\text{ellipse}", r"\text{It is an ellipse}"),
        (r"\text{No solution}", r"\text{The equation has no solution}"),
        (r"\text{No solution}", r"\text{There are no solutions}"), (r"\emptyset", r"\text{no real solutions}"),
        (r"\text{True}", r"\text{The statement is true}"), (r"\text{False}", r"\text{The statement is false}"),
        ("5", r"\text{The answer is } 5"), ("5", r"\text{The sum is } 5"), ("5", r"\text{The limit is }5"),
        ("5", r"\text{The maximum value is }5"), (r"\text{does not exist}", r"\text{DNE}"),
        (r"\text{converges}", r"\text{The series is convergent}"),
        (r"\text{the first player}", r"\text{The first player wins}"),
        (r"\text{first player}", r"\text{first player has a winning strategy}"),
        (r"\text{injective}", r"\text{The function is injective}"),
        (r"\text{absolutely convergent}", r"\text{The series is absolutely convergent}"), (r"\text{No}", r"\text{No.}"),
        (r"\text{Yes}", r"\text{Yes}"), (r"\text{not possible}", r"\text{It is not possible}"),
        (r"\text{No}", r"\text{No, it is impossible}"),
    ], [
        (r"\text{Bob}", r"\text{Bob loses}"), (r"\text{Bob}", r"\text{Alice wins}"),
        (r"\text{Bob}", r"\text{Bob does not win}"), (r"\text{Bob}", r"\text{Bob or Alice wins}"),
        (r"\text{Bob}", r"\text{Bob has no winning strategy}"), (r"\text{No}", r"\text{Yes, it does}"),
        (r"\text{Yes}", r"\text{Yes, it does not}"), (r"\text{No}", r"\text{No, it does}"),
        (r"\text{Yes}", r"\text{Yes and no}"), (r"\text{Yes}", r"\text{Yes, no}"),
        (r"\text{converges}", r"\text{The series does not converge}"), (r"\text{diverges}", r"\text{The series converges}"),
        (r"\text{DNE}", r"\text{The limit exists}"), (r"\text{ellipse}", r"\text{It is not an ellipse}"),
        (r"\text{ellipse}", r"\text{It is a circle}"), (r"\text{ellipse}", r"\text{The curve is an ellipse or a circle}"),
        (r"\text{converges}", r"\text{converges conditionally}"), (r"\text{converges}", r"\text{converges or diverges}"),
        (r"\text{True}", r"\text{The statement is false}"), (r"\text{True}", r"\text{The statement is not true}"),
        ("5", r"\text{The answer is not } 5"), ("5", r"\text{The sum is not } 5"), ("5", r"\text{The sum is }6"),
        (r"\text{No solution}", r"\text{The equation has a solution}"), (r"\text{Yes}", r"\text{maybe Yes}"),
        (r"\text{absolutely convergent}", r"\text{The series is convergent}"), (r"\text{No}", r"\text{No idea}"),
        (r"\emptyset", r"\text{none of these}"), ("5", r"\text{The opposite is } 5"),
        ("5", r"\text{The answer is } 5 \text{ or } 6"),
    ]),
}  # fmt: skip


def right(gold, answer):
    return judge_answer(rf"\boxed{{{answer}}}", gold).right


@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbour_of_the_same_meaning_is_right(kind):
    assert [pair for pair in KINDS[kind][0] if not right(*pair)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbour_of_another_meaning_is_wrong(kind):
    assert [pair for pair in KINDS[kind][1] if right(*pair)] == []


EXAMPLES = [
    example
    for line in GRAMMAR.splitlines()
    if "// " in line and not line.startswith("//")
    for example in line.partition("// ")[2].split("; ")
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_behind_a_rule_is_read(example):
    text = normalize(example)
    body = normalize(rf"x {example}")  # of a clause
    words = re.sub(r"\\text\{(.*)\}", r"\1", example)
    assert (
        read_parts(text)
        or read_pieces(text)
        or read_pieces(body)
        or read_sentence(words)
        or read_condition(text) != text
    )


def test_every_rule_has_an_example():
    rules = GRAMMAR.partition("\nFOR:")[0].splitlines()
    helpers = [line for line in rules if re.match(r"_|adjectives|    \| THERE|   \| NO", line)]
    assert [line for line in rules if line.strip() and "//" not in line and line not in helpers] == []
